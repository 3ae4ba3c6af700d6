//! The codes of `error` and `turn.failed`.

use serde::{Deserialize, Serialize};

/// Why a request or a turn failed, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The line is no JSON object of a known type.
    InvalidJson,
    /// A known message with a value that is not allowed, or at the wrong time.
    InvalidRequest,
    /// `initialize` has to come first.
    NotInitialized,
    /// Another protocol version; fatal.
    VersionMismatch,
    /// This server does not do that.
    Unsupported,
    /// No session of that id.
    SessionNotFound,
    /// The queue of prompts is full.
    QueueLimit,
    /// The queue entry was changed by somebody else.
    QueueConflict,
    /// A channel component failed.
    ComponentError,
    /// A delegation could not be listed or ended.
    DelegationError,
    /// The model provider failed.
    ProviderError,
    /// The context does not fit the model.
    ContextLimit,
    /// The history reached its limit.
    HistoryLimit,
    /// A response is larger than allowed.
    ResponseLimit,
    /// A response has more or larger tool calls than allowed.
    ToolLimit,
    /// The turn took more steps than allowed.
    StepLimit,
    /// A fault of ours.
    InternalError,
    /// The session's worker died while the turn ran.
    SessionCrashed,
    /// The session is in the hands of another worker.
    SessionBusy,
    /// The supervisor has as many live sessions as it may.
    SessionLimit,
    /// A token budget is used up.
    Budget,
    /// The supervisor could not be reached, or is stopping.
    Unavailable,
    /// A code of a newer server.
    #[serde(other)]
    Unknown,
}
