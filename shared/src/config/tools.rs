//! `[tools]`: limits of tool calls, and who is asked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::key::{Kind, Rule, int, section};

/// The largest `max_timeout_seconds`: one day.
pub const TIMEOUT_CEILING_SECONDS: u64 = super::DAY_SECONDS;

/// Who is asked before a call runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalPolicy {
    /// Reading runs unasked; somebody decides on everything else.
    #[default]
    OnRisk,
    /// Somebody decides on every call.
    Always,
    /// Nobody is asked: reading runs, everything else is denied.
    Never,
}

impl ApprovalPolicy {
    /// Whether `self` lets nothing through that `other` does not.
    pub fn is_as_strict_as(self, other: Self) -> bool {
        // `always` and `never` each allow something that the other one does not.
        self == other || other == Self::OnRisk
    }
}

section! {
    /// `[tools]`
    Tools in "tools" {
        /// Who is asked before a call runs.
        approval_policy: ApprovalPolicy = ApprovalPolicy::OnRisk, Kind::Choice(&["on-risk", "always", "never"]), Policy;
        /// Limit of a command whose call names none, in seconds; at most `max_timeout_seconds`.
        command_timeout_seconds: u64 = 600, int(1, TIMEOUT_CEILING_SECONDS), Lower;
        /// Limit of an agent's turn whose call names none, in seconds; at most `max_timeout_seconds`.
        agent_timeout_seconds: u64 = 3600, int(1, TIMEOUT_CEILING_SECONDS), Lower;
        /// What a call may ask for, in seconds; at most 86400.
        max_timeout_seconds: u64 = 14_400, int(1, TIMEOUT_CEILING_SECONDS), Lower;
        /// Output of one call that the model gets, in bytes: head and tail; 1 KiB to 1 MiB.
        output_limit_bytes: usize = 65_536, int(1024, 1 << 20), Lower;
        /// What one `read` returns, in bytes; 1 KiB to 1 MiB.
        max_read_bytes: usize = 262_144, int(1024, 1 << 20), Lower;
        /// What one `write` takes, in bytes; 1 KiB to 16 MiB.
        max_write_bytes: usize = 1_048_576, int(1024, 16 << 20), Lower;
        /// Variables that children get although they carry a configured secret.
        pass_env: Vec<String> = Vec::new(), Kind::Texts(VARIABLE), Subset;
    }
}

/// A variable's name, as others spell theirs.
const VARIABLE: Rule = Rule {
    allowed: "the name of an environment variable",
    holds: |text| !text.is_empty() && !text.contains(['=', '\0']) && !text.contains(char::is_whitespace),
};
