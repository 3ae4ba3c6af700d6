//! What clients send.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::control::Command;
use super::{ErrorCode, SessionId};

/// One message of a client. An unknown type parses to [`ClientMessage::Unknown`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum ClientMessage {
    /// The handshake; has to be first.
    #[serde(rename = "initialize")]
    Initialize(Initialize),
    /// A request to the supervisor.
    #[serde(rename = "daemon.control")]
    DaemonControl(DaemonControl),
    /// Starts a session; the connection belongs to it from then on.
    #[serde(rename = "session.start")]
    SessionStart(Box<SessionStart>),
    /// Attaches to a session in any state.
    #[serde(rename = "session.attach")]
    SessionAttach(SessionAttach),
    /// Leaves the session, which goes on.
    #[serde(rename = "session.detach")]
    SessionDetach(OfSession),
    /// Ends the session's processes; its data stays.
    #[serde(rename = "session.close")]
    SessionClose(OfSession),
    /// Pauses or resumes the queue.
    #[serde(rename = "session.pause")]
    SessionPause(SessionPause),
    /// Forgets the history of an idle session.
    #[serde(rename = "session.clear")]
    SessionClear(OfSession),
    /// A prompt: runs now or waits in the queue.
    #[serde(rename = "turn.start")]
    TurnStart(TurnStart),
    /// Ends the running turn.
    #[serde(rename = "turn.cancel")]
    TurnCancel(TurnCancel),
    /// Answers an approval.
    #[serde(rename = "approval.resolve")]
    ApprovalResolve(ApprovalResolve),
    /// Changes a waiting prompt.
    #[serde(rename = "queue.update")]
    QueueUpdate(QueueUpdate),
    /// Moves a waiting prompt.
    #[serde(rename = "queue.move")]
    QueueMove(QueueMove),
    /// Removes a waiting prompt.
    #[serde(rename = "queue.remove")]
    QueueRemove(QueueRemove),
    /// A message of a newer client; answered with `invalid_json`.
    #[serde(other)]
    Unknown,
}

/// `initialize`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Initialize {
    /// Unique on its connection.
    pub request_id: String,
    /// Has to be 3.
    pub protocol_version: u32,
    /// Who connects.
    pub client: Peer,
    /// New events that this client asks for (ours).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// A program and its version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name, such as `scv-exec`.
    pub name: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
}

/// `daemon.control`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DaemonControl {
    /// Unique on its connection.
    pub request_id: String,
    /// What to do.
    pub command: Command,
}

/// What becomes of a session when its last client's connection ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// The session closes: its processes end, its data stays.
    #[default]
    Close,
    /// The session goes on.
    Keep,
}

/// The chat that a session serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chat {
    /// The channel, such as `wechat`.
    pub channel: String,
    /// The account on it.
    pub account: String,
    /// The conversation of that account.
    pub conversation: String,
}

/// What our own client tells of where it runs (ours).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientContext {
    /// Its environment; children of the session get it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// `--config` or `SCV_CONFIG`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_path: Option<PathBuf>,
    /// Values that override the configuration, as `key.path = TOML value`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, String>,
}

/// `session.start`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStart {
    /// Unique on its connection.
    pub request_id: String,
    /// The workspace, absolute.
    pub cwd: PathBuf,
    /// The profile of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// A session without any tool.
    #[serde(default, skip_serializing_if = "is_false")]
    pub no_tools: bool,
    /// How deep this session is delegated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delegation_depth: u32,
    /// The chat channel whose owner this session serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// This client approves every request unasked.
    #[serde(default, skip_serializing_if = "is_false")]
    pub auto_approve: bool,
    /// The chat that this session serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat: Option<Chat>,
    /// Replaces the system prompt; only with `no_tools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Chosen by the client; the same id again attaches (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// What becomes of it at its last client's end (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disconnect: Option<OnDisconnect>,
    /// A name for people (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A closed session whose history this new one continues (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<SessionId>,
    /// Where the client runs (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientContext>,
}

/// `session.attach` (ours)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionAttach {
    /// Unique on its connection.
    pub request_id: String,
    /// The session.
    pub session_id: SessionId,
    /// The last `seq` that this client has seen; 0 replays all that is kept.
    #[serde(default)]
    pub after_seq: u64,
    /// Changes what becomes of the session at its last client's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disconnect: Option<OnDisconnect>,
    /// This client approves every request unasked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_approve: Option<bool>,
    /// Where the client runs; gives a recovered session its key back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientContext>,
    /// Without a replay: for a client that answers approvals, or changes the queue. Open approvals
    /// come between `session.attached` and the `queue.snapshot`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observe: bool,
}

/// A message that only names its session: `session.detach`, `session.close`, `session.clear`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfSession {
    /// Unique on its connection.
    pub request_id: String,
    /// The session.
    pub session_id: SessionId,
}

/// `session.pause`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPause {
    /// Unique on its connection.
    pub request_id: String,
    /// The session.
    pub session_id: SessionId,
    /// Whether waiting prompts stay waiting.
    pub paused: bool,
}

/// A file that comes with a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// `image`, `file`, `voice`, `video`.
    pub kind: String,
    /// Where it lies, absolute.
    pub path: PathBuf,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
    /// Its size in bytes.
    #[serde(default)]
    pub size: u64,
    /// What was said, for a voice message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript: Option<String>,
}

/// `turn.start`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnStart {
    /// Unique on its connection.
    pub request_id: String,
    /// The session.
    pub session_id: SessionId,
    /// What the user says; at most 256 KiB.
    pub prompt: String,
    /// Files that come with it; at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// A UUID of this prompt: sent again it starts nothing (ours).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<uuid::Uuid>,
}

/// `turn.cancel`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnCancel {
    /// Unique on its connection.
    pub request_id: String,
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: String,
}

/// `approval.resolve`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalResolve {
    /// Unique on its connection.
    pub request_id: String,
    /// The session.
    pub session_id: SessionId,
    /// The approval.
    pub approval_id: String,
    /// The answer.
    pub approved: bool,
    /// **ours**: why not, for the model, where it was not a person who said no; one line of at most
    /// [`super::limits::REASON_BYTES`] is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `queue.update`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueUpdate {
    /// Unique on its connection.
    pub request_id: String,
    /// The session.
    pub session_id: SessionId,
    /// The entry.
    pub queue_id: String,
    /// The revision that the client has seen.
    pub revision: u64,
    /// The new text.
    pub prompt: String,
}

/// `queue.move`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueMove {
    /// Unique on its connection.
    pub request_id: String,
    /// The session.
    pub session_id: SessionId,
    /// The entry.
    pub queue_id: String,
    /// The revision that the client has seen.
    pub revision: u64,
    /// The entry that it goes before; none: to the end.
    #[serde(default)]
    pub before_queue_id: Option<String>,
}

/// `queue.remove`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRemove {
    /// Unique on its connection.
    pub request_id: String,
    /// The session.
    pub session_id: SessionId,
    /// The entry.
    pub queue_id: String,
    /// The revision that the client has seen.
    pub revision: u64,
}

impl ClientMessage {
    /// The request's id; none for an unknown message.
    pub fn request_id(&self) -> Option<&str> {
        Some(match self {
            Self::Initialize(m) => &m.request_id,
            Self::DaemonControl(m) => &m.request_id,
            Self::SessionStart(m) => &m.request_id,
            Self::SessionAttach(m) => &m.request_id,
            Self::SessionDetach(m) | Self::SessionClose(m) | Self::SessionClear(m) => &m.request_id,
            Self::SessionPause(m) => &m.request_id,
            Self::TurnStart(m) => &m.request_id,
            Self::TurnCancel(m) => &m.request_id,
            Self::ApprovalResolve(m) => &m.request_id,
            Self::QueueUpdate(m) => &m.request_id,
            Self::QueueMove(m) => &m.request_id,
            Self::QueueRemove(m) => &m.request_id,
            Self::Unknown => return None,
        })
    }

    /// The session that the message names.
    pub fn session_id(&self) -> Option<SessionId> {
        match self {
            Self::SessionAttach(m) => Some(m.session_id),
            Self::SessionDetach(m) | Self::SessionClose(m) | Self::SessionClear(m) => Some(m.session_id),
            Self::SessionPause(m) => Some(m.session_id),
            Self::TurnStart(m) => Some(m.session_id),
            Self::TurnCancel(m) => Some(m.session_id),
            Self::ApprovalResolve(m) => Some(m.session_id),
            Self::QueueUpdate(m) => Some(m.session_id),
            Self::QueueMove(m) => Some(m.session_id),
            Self::QueueRemove(m) => Some(m.session_id),
            Self::SessionStart(m) => m.session_id,
            Self::Initialize(_) | Self::DaemonControl(_) | Self::Unknown => None,
        }
    }
}

/// Reads one line. On failure: what is wrong, and the `request_id` if the line has one.
pub fn parse(line: &[u8]) -> Result<ClientMessage, BadMessage> {
    #[derive(Default, Deserialize)]
    struct Envelope {
        #[serde(default)]
        request_id: Option<String>,
    }
    let request_id = || serde_json::from_slice::<Envelope>(line).unwrap_or_default().request_id;
    match serde_json::from_slice(line) {
        Ok(ClientMessage::Unknown) => Err(BadMessage {
            request_id: request_id(),
            code: ErrorCode::InvalidJson,
            reason: "this server does not know a message of that type".into(),
        }),
        Ok(message) => Ok(message),
        Err(error) if error.is_data() => {
            Err(BadMessage { request_id: request_id(), code: ErrorCode::InvalidRequest, reason: reason(&error) })
        }
        Err(error) => {
            Err(BadMessage { request_id: request_id(), code: ErrorCode::InvalidJson, reason: reason(&error) })
        }
    }
}

/// A line that is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadMessage {
    /// Its request, where it names one.
    pub request_id: Option<String>,
    /// `invalid_json` or `invalid_request`.
    pub code: ErrorCode,
    /// What is wrong, without the line's content.
    pub reason: String,
}

fn reason(error: &serde_json::Error) -> String {
    // serde quotes the offending value in some messages, and a value may be a secret.
    match error.classify() {
        serde_json::error::Category::Data => {
            let text = error.to_string();
            if text.starts_with("missing field") { text } else { "a field has a value that is not allowed".into() }
        }
        _ => format!("the line is not one JSON object (column {})", error.column()),
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}
