//! What servers send.
//!
//! Three families: events of a turn and events of a session take the session's next `seq`;
//! replies belong to one connection and take none.

use std::path::PathBuf;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::client::{Attachment, Peer};
use super::control::{SessionState, Status};
use super::{ErrorCode, SessionId};

/// One event. An unknown type parses to [`ServerEvent::Unknown`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ServerEvent {
    /// Of a turn.
    Turn(TurnEvent),
    /// Of a session, outside a turn.
    Session(SessionEvent),
    /// To one connection.
    Reply(Reply),
    /// Of a newer server.
    Unknown(Value),
}

/// In the place of an event's number: the event answers one client, which sent a prompt again (ours), and
/// has none.
pub const UNNUMBERED: u64 = 0;

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_unnumbered(seq: &u64) -> bool {
    *seq == UNNUMBERED
}

/// An event of a turn, as it goes over the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnEvent {
    /// What happened.
    #[serde(flatten)]
    pub body: TurnBody,
    /// The request that started the turn.
    pub request_id: String,
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: String,
    /// The session's number of this event, from 1.
    #[serde(default, skip_serializing_if = "is_unnumbered")]
    pub seq: u64,
}

/// An event of a session outside a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionEvent {
    /// What happened.
    #[serde(flatten)]
    pub body: SessionBody,
    /// The request that caused it, if one did.
    pub request_id: Option<String>,
    /// The session.
    pub session_id: SessionId,
    /// The session's number of this event, from 1.
    #[serde(default, skip_serializing_if = "is_unnumbered")]
    pub seq: u64,
}

/// What happened in a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum TurnBody {
    /// The turn runs.
    #[serde(rename = "turn.started")]
    Started {
        /// Set where the server started it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<Origin>,
    },
    /// Text as it arrives. Not journaled.
    #[serde(rename = "assistant.delta")]
    AssistantDelta {
        /// The next piece.
        content: String,
    },
    /// The text of one response, whole; empty where it only calls tools.
    #[serde(rename = "assistant.completed")]
    AssistantCompleted {
        /// The text.
        content: String,
    },
    /// The model calls a tool.
    #[serde(rename = "tool.proposed")]
    ToolProposed {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// Its arguments, as the model wrote them.
        arguments: Value,
    },
    /// Somebody has to decide.
    #[serde(rename = "approval.requested")]
    ApprovalRequested(ApprovalRequest),
    /// The call runs.
    #[serde(rename = "tool.started")]
    ToolStarted {
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// When it started (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        started_unix_ms: Option<u64>,
        /// The limit in force (ours).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit_ms: Option<u64>,
    },
    /// What the call does. Not journaled, never part of history.
    #[serde(rename = "tool.progress")]
    ToolProgress {
        /// The call.
        call_id: String,
        /// Lines for people.
        text: String,
    },
    /// The call ended, ran or not.
    #[serde(rename = "tool.completed")]
    ToolCompleted(ToolCompleted),
    /// Older messages left the context.
    #[serde(rename = "context.compacted")]
    ContextCompacted {
        /// Tokens before.
        before_tokens: u64,
        /// Tokens after.
        after_tokens: u64,
        /// Messages that left.
        removed_messages: u64,
    },
    /// The turn ended well.
    #[serde(rename = "turn.completed")]
    Completed {
        /// Responses that it took.
        steps: u32,
        /// Tokens that it took.
        usage: Usage,
        /// Set where the server started it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<Origin>,
    },
    /// The turn was cancelled.
    #[serde(rename = "turn.cancelled")]
    Cancelled {},
    /// The turn failed.
    #[serde(rename = "turn.failed")]
    Failed {
        /// Why, for programs.
        code: ErrorCode,
        /// Why, for people.
        message: String,
        /// Set where the server started it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<Origin>,
    },
}

impl TurnBody {
    /// Whether this is a turn's last event.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Completed { .. } | Self::Cancelled {} | Self::Failed { .. })
    }

    /// Deltas and progress are neither journaled nor replayed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::AssistantDelta { .. } | Self::ToolProgress { .. })
    }
}

/// What happened in a session outside a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum SessionBody {
    /// A prompt waits.
    #[serde(rename = "queue.enqueued")]
    QueueEnqueued {
        /// The prompt.
        entry: QueueEntry,
        /// Its place, from 0.
        position: usize,
    },
    /// A waiting prompt became a turn.
    #[serde(rename = "queue.dequeued")]
    QueueDequeued {
        /// The entry.
        queue_id: String,
        /// The turn.
        turn_id: String,
    },
    /// A waiting prompt was changed.
    #[serde(rename = "queue.updated")]
    QueueUpdated {
        /// The entry now.
        entry: QueueEntry,
    },
    /// A waiting prompt was moved.
    #[serde(rename = "queue.moved")]
    QueueMoved {
        /// The entry now.
        entry: QueueEntry,
        /// Its place, from 0.
        position: usize,
    },
    /// A waiting prompt was removed.
    #[serde(rename = "queue.removed")]
    QueueRemoved {
        /// The entry.
        queue_id: String,
    },
    /// The history is empty now.
    #[serde(rename = "session.cleared")]
    Cleared {},
    /// The oldest part of the history was dropped.
    #[serde(rename = "session.trimmed")]
    Trimmed {
        /// Messages that were dropped.
        removed_messages: u64,
        /// What is left.
        history_bytes: u64,
    },
}

/// What one connection is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Reply {
    /// The handshake is done.
    #[serde(rename = "initialized")]
    Initialized {
        /// The request.
        request_id: String,
        /// 3.
        protocol_version: u32,
        /// Who answers.
        server: Peer,
        /// Of the features asked for, those in force (ours).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        features: Vec<String>,
    },
    /// The session runs.
    #[serde(rename = "session.started")]
    SessionStarted(SessionStarted),
    /// Brackets a replay (ours).
    #[serde(rename = "session.attached")]
    SessionAttached(SessionAttached),
    /// This client left the session (ours).
    #[serde(rename = "session.detached")]
    SessionDetached {
        /// The request.
        request_id: String,
        /// The session.
        session_id: SessionId,
    },
    /// The session's processes are gone (ours).
    #[serde(rename = "session.closed")]
    SessionClosed {
        /// The request, where one of this client's caused it.
        request_id: Option<String>,
        /// The session.
        session_id: SessionId,
    },
    /// What a person should see of a turn that waits, such as a retry (ours; feature `notices`).
    #[serde(rename = "turn.notice")]
    TurnNotice {
        /// The session.
        session_id: SessionId,
        /// The turn.
        turn_id: String,
        /// One line.
        text: String,
    },
    /// The session's worker died (ours; feature `watch`).
    #[serde(rename = "session.crashed")]
    SessionCrashed {
        /// The session.
        session_id: SessionId,
        /// In words.
        reason: String,
        /// The signal, if one killed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// The exit code, if it exited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Whether attaching starts it again.
        resumable: bool,
    },
    /// An approval was answered (ours; feature `approvals`).
    #[serde(rename = "approval.resolved")]
    ApprovalResolved {
        /// The session.
        session_id: SessionId,
        /// The approval.
        approval_id: String,
        /// The answer.
        approved: bool,
        /// Who answered: `client`, `timeout`, `cancel`.
        by: String,
    },
    /// All waiting prompts.
    #[serde(rename = "queue.snapshot")]
    QueueSnapshot {
        /// Always null.
        request_id: Option<String>,
        /// The session.
        session_id: SessionId,
        /// The prompts, first first.
        entries: Vec<QueueEntry>,
        /// Whether they stay waiting.
        paused: bool,
    },
    /// The supervisor's answer.
    #[serde(rename = "daemon.status")]
    DaemonStatus {
        /// The request.
        request_id: String,
        /// The status.
        status: Box<Status>,
    },
    /// The whole of what is watched (ours; feature `watch`).
    #[serde(rename = "watch.snapshot")]
    WatchSnapshot {
        /// The request.
        request_id: String,
        /// Grows with each change.
        rev: u64,
        /// Session entries.
        sessions: Vec<Value>,
    },
    /// What changed (ours; feature `watch`).
    #[serde(rename = "watch.changed")]
    WatchChanged {
        /// Grows with each change.
        rev: u64,
        /// Session entries that are new or different.
        set: Vec<Value>,
        /// Sessions that are no longer live.
        gone: Vec<String>,
    },
    /// The request failed.
    #[serde(rename = "error")]
    Error(WireError),
}

/// `error`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireError {
    /// The request, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Why, for programs.
    pub code: ErrorCode,
    /// Why, for people.
    pub message: String,
    /// Whether the connection ends.
    #[serde(default)]
    pub fatal: bool,
    /// The entry as it is now, with `queue_conflict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<QueueEntry>,
}

/// `session.started`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStarted {
    /// The request.
    pub request_id: String,
    /// The session.
    pub session_id: SessionId,
    /// Its workspace.
    pub cwd: PathBuf,
    /// Its model.
    pub model: String,
    /// `context.max_tokens`.
    pub context_max_tokens: u64,
    /// The largest frame that this server sends.
    pub max_server_frame_bytes: u64,
    /// `tui.max_transcript_bytes`.
    pub max_transcript_bytes: u64,
    /// `tui.max_transcript_items`.
    pub max_transcript_items: u64,
    /// `tui.max_prompt_history_bytes`.
    pub max_prompt_history_bytes: u64,
    /// `tui.max_prompt_history_items`.
    pub max_prompt_history_items: u64,
}

/// `session.attached` (ours)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionAttached {
    /// The request.
    pub request_id: String,
    /// The session.
    pub session_id: SessionId,
    /// What it was when this client came.
    pub state: SessionState,
    /// The first number that the replay may hold.
    pub from_seq: u64,
    /// The last one before live events.
    pub to_seq: u64,
    /// Its workspace.
    pub cwd: PathBuf,
    /// Its model.
    pub model: String,
    /// What a person should know, such as that a key is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// `approval.requested`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequest {
    /// Never reused.
    pub approval_id: String,
    /// The call.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// What it may do.
    pub risk: Risk,
    /// The session's workspace.
    pub cwd: PathBuf,
    /// What is to be decided.
    pub summary: String,
    /// When it is denied if nobody answers (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_unix_ms: Option<u64>,
}

/// `tool.completed`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCompleted {
    /// The call.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Whether it did what was asked.
    pub success: bool,
    /// What the model gets.
    pub output: String,
    /// Whether `output` was cut.
    pub truncated: bool,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ToolErrorKind>,
    /// Jobs that the call started or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<Value>,
    /// How long it ran (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// What a tool may do to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Reads in the workspace.
    ReadOnly,
    /// Changes files, or reads secret-like ones.
    Filesystem,
    /// Runs a program.
    Process,
    /// Hands work to another agent.
    Delegate,
    /// Talks to a host that the model chose.
    Network,
    /// A risk of a newer server.
    #[serde(other)]
    Unknown,
}

/// Why a call did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrorKind {
    /// Somebody or the policy said no.
    Denied,
    /// The turn was cancelled.
    Cancelled,
    /// The arguments are not allowed.
    InvalidArguments,
    /// What it needs is not there.
    Unavailable,
    /// A limit was reached.
    Limit,
    /// No tool of that name.
    UnknownTool,
    /// It ran and failed.
    Failed,
    /// A kind of a newer server.
    #[serde(other)]
    Unknown,
}

/// Tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Tokens received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Of those sent, tokens that the provider had cached (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
}

impl Usage {
    /// The sum; a part that neither side knows stays unknown.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
            match (a, b) {
                (None, None) => None,
                (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
            }
        }
        Self {
            input_tokens: add(self.input_tokens, other.input_tokens),
            output_tokens: add(self.output_tokens, other.output_tokens),
            cached_tokens: add(self.cached_tokens, other.cached_tokens),
        }
    }
}

/// Why the server started a turn by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// `background`.
    pub kind: String,
    /// The jobs that it reports.
    #[serde(default)]
    pub jobs: Vec<Value>,
}

/// A waiting prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueEntry {
    /// The entry.
    pub queue_id: String,
    /// Grows with each change of the entry.
    pub revision: u64,
    /// The text.
    pub prompt: String,
    /// The name of the client that sent it.
    #[serde(default)]
    pub submitter: String,
    /// Files that come with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
}

impl ServerEvent {
    /// The number of this event, if it takes one.
    pub fn seq(&self) -> Option<u64> {
        match self {
            Self::Turn(TurnEvent { seq, .. }) | Self::Session(SessionEvent { seq, .. }) => {
                Some(*seq).filter(|seq| *seq != UNNUMBERED)
            }
            Self::Reply(_) | Self::Unknown(_) => None,
        }
    }

    /// An error that leaves the connection usable.
    pub fn error(request_id: Option<String>, code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Reply(Reply::Error(WireError { request_id, code, message: message.into(), fatal: false, entry: None }))
    }

    /// An error after which the connection is closed.
    pub fn fatal(request_id: Option<String>, code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Reply(Reply::Error(WireError { request_id, code, message: message.into(), fatal: true, entry: None }))
    }

    /// The event as one line with its newline.
    pub fn to_line(&self) -> Vec<u8> {
        // Our own types with string keys: serialization cannot fail.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// The types of [`TurnBody`], sorted.
const TURN_TYPES: [&str; 12] = [
    "approval.requested",
    "assistant.completed",
    "assistant.delta",
    "context.compacted",
    "tool.completed",
    "tool.progress",
    "tool.proposed",
    "tool.started",
    "turn.cancelled",
    "turn.completed",
    "turn.failed",
    "turn.started",
];

/// The types of [`SessionBody`], sorted.
const SESSION_TYPES: [&str; 7] = [
    "queue.dequeued",
    "queue.enqueued",
    "queue.moved",
    "queue.removed",
    "queue.updated",
    "session.cleared",
    "session.trimmed",
];

/// The types of [`Reply`], sorted.
const REPLY_TYPES: [&str; 13] = [
    "approval.resolved",
    "daemon.status",
    "error",
    "initialized",
    "queue.snapshot",
    "session.attached",
    "session.closed",
    "session.crashed",
    "session.detached",
    "session.started",
    "turn.notice",
    "watch.changed",
    "watch.snapshot",
];

impl<'de> Deserialize<'de> for ServerEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let kind = value.get("type").and_then(Value::as_str).ok_or_else(|| D::Error::missing_field("type"))?;
        let is = |table: &[&str]| table.binary_search(&kind).is_ok();
        if is(&TURN_TYPES) {
            TurnEvent::deserialize(value).map(Self::Turn).map_err(D::Error::custom)
        } else if is(&SESSION_TYPES) {
            SessionEvent::deserialize(value).map(Self::Session).map_err(D::Error::custom)
        } else if is(&REPLY_TYPES) {
            Reply::deserialize(value).map(Self::Reply).map_err(D::Error::custom)
        } else {
            Ok(Self::Unknown(value))
        }
    }
}
