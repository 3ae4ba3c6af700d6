//! `[supervisor]`, `[channels.<channel>.<account>]`, `[tui]`: what belongs to no session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::key::{ANY, Kind, Rule, int, section};

/// The chat channels that SCV knows.
pub const CHANNELS: [&str; 2] = ["feishu", "wechat"];

/// Who may use tools from a chat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RemoteTools {
    /// Nobody.
    #[default]
    None,
    /// The account's owner.
    Owner,
}

/// Whose messages are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Senders {
    /// The account's owner's.
    #[default]
    Owner,
    /// Everybody's.
    Anyone,
}

/// A size for the kernel.
const SIZE: Rule = Rule {
    allowed: "a size such as \"512M\" or \"2G\", or nothing",
    holds: |text| {
        let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
        text.is_empty()
            || (text.len() - digits.len() <= 1 && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    },
};

section! {
    /// `[supervisor]`
    Supervisor in "supervisor" {
        /// Workers that wait without a session, so that one starts at once; at most 8.
        spare_workers: usize = 1, int(0, 8), Never;
        /// Live workers; at most 4096.
        max_sessions: usize = 512, int(1, 4096), Never;
        /// Memory of one session's processes, such as `2G`, where the kernel lets us; empty: no limit.
        worker_memory_max: String = String::new(), Kind::Text(SIZE), Never;
        /// Wanted and observed are compared every so many seconds; 1 to 3600.
        reconcile_seconds: u64 = 60, int(1, 3600), Never;
        /// A supervisor that was started on demand leaves after this many seconds with nothing live or wanted; 0: never.
        idle_exit_seconds: u64 = 600, int(0, 30 * super::DAY_SECONDS), Never;
    }
}

section! {
    /// `[channels.<channel>.<account>]`; only in the instance's own configuration.
    Channel in "channels.*.*" {
        /// Whether the account is served.
        enabled: bool = true, Kind::Bool, Never;
        /// Where its sessions work; empty: their own directory.
        workspace: String = String::new(), Kind::Text(ANY), Never;
        /// Who may use tools from the chat.
        remote_tools: RemoteTools = RemoteTools::None, Kind::Choice(&["none", "owner"]), Never;
        /// Whose messages are answered.
        senders: Senders = Senders::Owner, Kind::Choice(&["owner", "anyone"]), Never;
    }
}

section! {
    /// `[tui]`: what a terminal keeps in memory.
    Tui in "tui" {
        /// Transcript in bytes.
        max_transcript_bytes: u64 = 8_388_608, int(64 << 10, 1 << 30), Never;
        /// Transcript in items.
        max_transcript_items: u64 = 10_000, int(16, 1_000_000), Never;
        /// Prompt history in bytes.
        max_prompt_history_bytes: u64 = 1_048_576, int(1024, 1 << 30), Never;
        /// Prompt history in items.
        max_prompt_history_items: u64 = 200, int(1, 100_000), Never;
    }
}
