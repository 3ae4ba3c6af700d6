//! Codex, `OpenAI`'s coding agent; facts checked with 0.171.0.

use super::super::output::codex;
use super::{Adapter, Full, Resume};

/// `codex exec --json -o <file> [-m <model>] [-c model_reasoning_effort="<effort>"] <prompt>`
pub(super) static CODEX: Adapter = Adapter {
    name: "codex",
    product: "Codex",
    about: "OpenAI's coding agent; it reads, edits, and runs code in a project, with live web search under full \
            permissions",
    models: "OpenAI model ID from the Codex configuration; not a Claude alias",
    // `codex exec` has no `--search`.
    full: Full { args: &["--dangerously-bypass-approvals-and-sandbox", "-c", "web_search=\"live\""], env: &[] },
    output_args: &["--json", "-o", "{last}"],
    format: Some(|| Box::<codex::Codex>::default()),
    cumulative_usage: true,
    resume: Some(Resume { first: &[], early: &["resume"], late: &["{id}"] }),
    subcommands: &["fork", "help", "resume", "review"],
    bin_dirs: &[],
    state: &[("CODEX_HOME", "")],
    env: &[],
    removes: &["CODEX_*"],
    transcripts: "sessions",
    signed_out: &["missing bearer", "missing environment variable"],
    lost: &["no rollout found for thread id"],
    hints: &[(
        "not inside a trusted directory",
        "Codex works in a git repository or in a directory that its own config.toml trusts; to allow others, add \
         \"--skip-git-repo-check\" to args of [agents.codex]",
    )],
    second_opinion: false,
};
