//! `[agents.<name>]`: the agent CLIs that work can be handed to, and how each is started.
//!
//! What an agent's output means is its adapter's business.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::key::{ANY, Kind, Rule, section};

/// The agents that SCV knows, sorted.
pub const NAMES: [&str; 6] = ["claude", "codex", "dsh", "grok", "pi", "scv"];

/// One of [`NAMES`].
pub(super) const AGENT: Rule = Rule {
    allowed: "one of \"claude\", \"codex\", \"dsh\", \"grok\", \"pi\", \"scv\"",
    holds: |text| NAMES.contains(&text),
};

/// What an agent may do without asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Permissions {
    /// What its own defaults say.
    #[default]
    Default,
    /// Everything: no sandbox, no questions.
    Full,
}

/// How SCV talks to an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// The best one that it has.
    #[default]
    Auto,
    /// A live process that speaks the Agent Client Protocol.
    Acp,
    /// A process a turn, resumed by the agent's own session id.
    Resume,
}

/// One line for the model.
const NOTE: Rule =
    Rule { allowed: "one line of at most 500 bytes", holds: |text| text.len() <= 500 && !text.contains(['\n', '\r']) };

/// A model, as an argument: never a flag, never a file (`@`).
const MODEL: Rule = Rule {
    allowed: "at most 128 letters, digits or ._:/@[]-, and no leading - or @",
    holds: |text| {
        text.len() <= 128
            && !text.starts_with(['-', '@'])
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/@[]-".contains(&b))
    },
};

section! {
    /// `[agents.<name>]`
    Agent in "agents.*" {
        /// The executable, by name or path.
        command: String = String::new(), Kind::Text(ANY), Never;
        /// Arguments that come first.
        args: Vec<String> = Vec::new(), Kind::Texts(ANY), Never;
        /// Arguments that choose a model; `{model}` is replaced. Empty: it offers no choice.
        model_args: Vec<String> = Vec::new(), Kind::Texts(ANY), Never;
        /// Arguments that choose an effort; `{effort}` is replaced. Empty: it offers no choice.
        effort_args: Vec<String> = Vec::new(), Kind::Texts(ANY), Never;
        /// Arguments just before the prompt.
        prompt_args: Vec<String> = Vec::new(), Kind::Texts(ANY), Never;
        /// What it may do without asking.
        permissions: Permissions = Permissions::Default, Kind::Choice(&["default", "full"]), Never;
        /// How SCV talks to it.
        transport: Transport = Transport::Auto, Kind::Choice(&["auto", "acp", "resume"]), Never;
        /// When to use it, one line for the main agent.
        use_for: String = String::new(), Kind::Text(NOTE), Never;
        /// Its model for that work; empty: its own default.
        model: String = String::new(), Kind::Text(MODEL), Never;
        /// Its effort for that work; empty: its own default.
        effort: String = String::new(), Kind::Choice(&["", "low", "medium", "high", "xhigh", "max"]), Never;
    }
}

impl Agent {
    /// The agents as they are without a configuration.
    pub(super) fn built_in() -> BTreeMap<String, Self> {
        fn words(words: &[&str]) -> Vec<String> {
            words.iter().copied().map(String::from).collect()
        }
        // name, args, model_args, effort_args, prompt_args
        type Row = (
            &'static str,
            &'static [&'static str],
            &'static [&'static str],
            &'static [&'static str],
            &'static [&'static str],
        );
        const ROWS: [Row; NAMES.len()] = [
            ("claude", &["-p"], &["--model", "{model}"], &["--effort", "{effort}"], &[]),
            ("codex", &["exec"], &["-m", "{model}"], &["-c", "model_reasoning_effort=\"{effort}\""], &[]),
            ("dsh", &["--profile", "headless"], &[], &[], &[]),
            ("grok", &[], &["-m", "{model}"], &["--reasoning-effort", "{effort}"], &["-p"]),
            ("pi", &["-p"], &["--model", "{model}"], &["--thinking", "{effort}"], &[]),
            ("scv", &["server", "--stdio"], &[], &[], &[]),
        ];
        ROWS.iter()
            .map(|(name, args, model_args, effort_args, prompt_args)| {
                let agent = Self {
                    command: (*name).into(),
                    args: words(args),
                    model_args: words(model_args),
                    effort_args: words(effort_args),
                    prompt_args: words(prompt_args),
                    ..Self::default()
                };
                ((*name).into(), agent)
            })
            .collect()
    }
}
