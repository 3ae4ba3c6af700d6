//! The agent programs that SCV knows: one file with the facts of each, one line in [`ALL`].
//!
//! An adapter is data. How a program is started, watched and ended is the same for all and lives
//! in the transports and in [`super::delegation`]. Its command line is in the configuration, where
//! a user can change it; here is what the configuration cannot say.

mod codex;

use super::output::Format;

/// Every agent, sorted by name.
pub(crate) const ALL: &[&Adapter] = &[&codex::CODEX];

/// What SCV knows about one agent program (tools.md, "Delegated agents").
pub(crate) struct Adapter {
    /// The value of the `agent` argument and the name of its private home.
    pub name: &'static str,
    /// What people call it.
    pub product: &'static str,
    /// What it is and offers; the model reads it. Without a final period.
    pub about: &'static str,
    /// Which values its `model` takes.
    pub models: &'static str,
    /// What `permissions = "full"` adds.
    pub full: Full,
    /// Arguments that select the output, with `{last}` for the file of the final message.
    pub output_args: &'static [&'static str],
    /// Reads its events; without one, stdout is the reply.
    pub format: Option<fn() -> Box<dyn Format>>,
    /// Whether the usage that it reports is that of the whole conversation.
    pub cumulative_usage: bool,
    /// How a conversation goes on in one process per turn; `None`: it cannot.
    pub resume: Option<Resume>,
    /// First arguments that the program would read as a command instead of a prompt.
    pub subcommands: &'static [&'static str],
    /// Per-user install directories below the user's home, beside `.local/bin`.
    pub bin_dirs: &'static [&'static str],
    /// Where its state lives: a variable and a path inside the private home.
    pub state: &'static [(&'static str, &'static str)],
    /// Variables that it always gets.
    pub env: &'static [(&'static str, &'static str)],
    /// Credential, endpoint and state variables that no agent may inherit; `*` ends a prefix.
    pub removes: &'static [&'static str],
    /// Where its transcripts are, inside the private home.
    #[expect(dead_code, reason = "for `scv agents gc`, which collects old ones")]
    pub transcripts: &'static str,
    /// What an error reads like when nobody is signed in, in lower case.
    pub signed_out: &'static [&'static str],
    /// What it says, in lower case, when it does not know the conversation to resume.
    pub lost: &'static [&'static str],
    /// What it says, in lower case, about other causes that a user can mend, and what to do.
    pub hints: &'static [(&'static str, &'static str)],
    /// Requests that another agent refused may be given to this one.
    pub second_opinion: bool,
}

/// What `permissions = "full"` adds to a start.
pub(crate) struct Full {
    /// Arguments, after the fixed ones.
    pub args: &'static [&'static str],
    /// Variables.
    pub env: &'static [(&'static str, &'static str)],
}

/// How a conversation goes on in one process per turn.
pub(crate) struct Resume {
    /// Arguments of the first turn with `{id}`, if SCV chooses the id; else the program reports it.
    pub first: &'static [&'static str],
    /// Arguments of a later turn right after the fixed ones, with `{id}`.
    pub early: &'static [&'static str],
    /// Arguments of a later turn right before the prompt, with `{id}`.
    pub late: &'static [&'static str],
}

/// Variables of model vendors and of SCV itself that no agent may inherit, beside everything that
/// ends in [`KEY_SUFFIX`] and what each adapter removes. Sorted; `*` ends a prefix.
const FOREIGN: &[&str] = &[
    "ANTHROPIC_*",
    "AZURE_OPENAI_*",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_*",
    "CLAUDE_CONFIG_DIR",
    "DEEPSEEK_BASE_URL",
    "DSH_*",
    "GEMINI_BASE_URL",
    "GROK_*",
    "OPENAI_*",
    "PI_*",
    "SCV_BASE_URL",
    "SCV_CONFIG",
    "SCV_HOME",
    "SCV_LOG",
    "SCV_MODEL",
    "SCV_PROVIDER",
    "XAI_*",
];

/// The end of the name of every vendor's key.
const KEY_SUFFIX: &str = "_API_KEY";

/// An agent without facts, for tests of what several agents make different.
#[cfg(test)]
pub(crate) const NONE: Adapter = Adapter {
    name: "",
    product: "",
    about: "",
    models: "",
    full: Full { args: &[], env: &[] },
    output_args: &[],
    format: None,
    cumulative_usage: false,
    resume: None,
    subcommands: &[],
    bin_dirs: &[],
    state: &[],
    env: &[],
    removes: &[],
    transcripts: "",
    signed_out: &[],
    lost: &[],
    hints: &[],
    second_opinion: false,
};

/// The adapter called `name`.
#[cfg(test)]
pub(crate) fn find(name: &str) -> Option<&'static Adapter> {
    ALL.iter().copied().find(|adapter| adapter.name == name)
}

/// Whether an agent may inherit the variable `name`.
pub(crate) fn may_inherit(name: &str) -> bool {
    let mut removed = FOREIGN.iter().chain(ALL.iter().flat_map(|adapter| adapter.removes));
    let is_removed = removed.any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *pattern,
    });
    !is_removed && !name.ends_with(KEY_SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted_and_every_fact_is_there() {
        assert!(ALL.is_sorted_by_key(|adapter| adapter.name));
        assert!(FOREIGN.is_sorted());
        for adapter in ALL {
            assert!(find(adapter.name).is_some_and(|found| std::ptr::eq(found, *adapter)));
            assert!(!adapter.about.ends_with('.') && !adapter.product.is_empty(), "{}", adapter.name);
            let configured = &shared::config::Config::default().agents[adapter.name];
            assert!(!configured.command.is_empty(), "the configuration knows {}", adapter.name);
        }
    }

    #[test]
    fn credentials_endpoints_and_selectors_are_not_inherited() {
        for name in [
            "ANTHROPIC_AUTH_TOKEN",
            "BRAVE_SEARCH_API_KEY",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CONFIG_DIR",
            "CODEX_BASE_URL",
            "CODEX_HOME",
            "DEEPSEEK_BASE_URL",
            "DSH_HOME",
            "GROK_HOME",
            "OPENAI_BASE_URL",
            "OPENAI_API_KEY",
            "PI_CODING_AGENT_DIR",
            "SCV_API_KEY",
            "SCV_CONFIG",
            "SCV_HOME",
            "SCV_MODEL",
        ] {
            assert!(!may_inherit(name), "{name}");
        }
        for name in ["PATH", "LANG", "HTTPS_PROXY", "SCV_PARENT", "SCV_DELEGATION_DEPTH", "PIP_INDEX_URL", "GH_TOKEN"] {
            assert!(may_inherit(name), "{name}");
        }
    }
}
