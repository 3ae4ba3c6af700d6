//! `[agent]`, `[session]`, `[context]`, `[usage]`: what one session may take.

use super::agents::AGENT;
use super::key::{ANY, Kind, Rule, int, section};

/// A text of people for the model.
const INSTRUCTIONS: Rule = Rule { allowed: "a text of at most 64 KiB", holds: |text| text.len() <= 64 << 10 };

section! {
    /// `[agent]`: the main agent, and how far it may delegate.
    MainAgent in "agent" {
        /// Model responses of one turn; at most 10000.
        max_steps: u32 = 128, int(1, 10_000), Lower;
        /// What is added to the system prompt.
        system_prompt: String = String::new(), Kind::Text(INSTRUCTIONS), Append;
        /// How deep delegated agents may delegate; at most 8.
        max_delegation_depth: u32 = 2, int(0, 8), Lower;
        /// Conversations with agents that one session keeps open; at most 64.
        max_conversations: usize = 8, int(1, 64), Lower;
        /// An unused conversation ends after this many seconds.
        conversation_idle_seconds: u64 = 86_400, int(1, 30 * super::DAY_SECONDS), Lower;
        /// Background jobs of one session; at most 16, and 0 turns them off.
        max_background: usize = 4, int(0, 16), Lower;
        /// An idle live agent that can be loaded again is ended after this many seconds.
        park_seconds: u64 = 600, int(1, super::DAY_SECONDS), Lower;
        /// Agents to prefer, first first; the first one on offer is the default.
        prefer: Vec<String> = Vec::new(), Kind::Texts(AGENT), Never;
    }
}

section! {
    /// `[session]`
    Session in "session" {
        /// History of one session, in bytes; 64 KiB to 1 GiB.
        max_history_bytes: usize = 16_777_216, int(64 << 10, 1 << 30), Lower;
        /// Messages of one session's history.
        max_messages: usize = 10_000, int(16, 1_000_000), Lower;
        /// An approval is denied after this many seconds while somebody who can answer is attached.
        approval_seconds: u64 = 86_400, int(1, 30 * super::DAY_SECONDS), Lower;
        /// An approval is denied after this many seconds while nobody can answer.
        unattended_approval_seconds: u64 = 600, int(1, super::DAY_SECONDS), Lower;
        /// A closed session is removed with its data after this many days.
        keep_closed_days: u64 = 30, int(1, 3650), Never;
        /// A larger journal is replaced by a snapshot and its newest events; 1 MiB to 1 GiB.
        journal_max_bytes: u64 = 16_777_216, int(1 << 20, 1 << 30), Never;
        /// Tokens that one session may take; 0: no limit.
        token_budget: u64 = 0, int(0, u64::MAX), Budget;
        /// An idle session's worker exits after this many seconds; 0: never.
        hibernate_seconds: u64 = 900, int(0, 30 * super::DAY_SECONDS), Never;
    }
}

section! {
    /// `[context]`: what is sent to the model.
    Context in "context" {
        /// The model's window, in tokens.
        max_tokens: u64 = 128_000, int(4096, 100_000_000), Lower;
        /// Tokens of it that are kept for the answer.
        reserve_output_tokens: u64 = 8192, int(256, 10_000_000), Never;
        /// Tokens that an estimate may be wrong by.
        safety_margin_tokens: u64 = 2048, int(0, 10_000_000), Never;
        /// Bytes of text that are taken for one token; 1 to 16.
        bytes_per_token: u64 = 3, int(1, 16), Never;
        /// Characters of a summary of what left the context.
        summary_max_chars: usize = 6000, int(200, 100_000), Lower;
    }
}

section! {
    /// `[usage]`
    UsageLimits in "usage" {
        /// Tokens that all sessions together may take in a day; 0: no limit.
        day_budget: u64 = 0, int(0, u64::MAX), Budget;
    }
}

section! {
    /// `[skills]`
    Skills in "skills" {
        /// The user's own skills; `skills` in the instance's home.
        user_dir: std::path::PathBuf = std::path::PathBuf::new(), Kind::Text(ANY), Never;
        /// A project's skills, below its directory.
        project_dir: std::path::PathBuf = ".scv/skills".into(), Kind::Text(BELOW), Never;
        /// Whether a project's skills are read.
        scan_projects: bool = true, Kind::Bool, Off;
        /// Skills of one session.
        max_skills: usize = 128, int(0, 4096), Lower;
        /// One skill, in bytes.
        max_skill_bytes: usize = 262_144, int(1024, 16 << 20), Lower;
    }
}

/// A path that stays below where it counts from.
const BELOW: Rule = Rule {
    allowed: "a relative path without \"..\"",
    holds: |text| !text.starts_with('/') && text.split('/').all(|part| part != ".."),
};
