//! The link between scvd and a worker: JSON lines over the worker's control socket, and client
//! connections passed by descriptor.
//!
//! scvd always connects and the worker listens, at first start and after scvd's own restart:
//! one code path. The link is versioned; a supervisor accepts workers one release older.

mod address;
mod wire;

use serde::{Deserialize, Serialize};

use crate::protocol::client::Peer;
use crate::protocol::control::SessionEntry;
use crate::protocol::{ErrorCode, SessionId};

pub use address::SocketAddress;
pub use wire::{HandOver, LinkReader, LinkWriter, split};

/// The version of this link's messages. 2: a worker can be renewed ([`ToWorker::Renew`]).
pub const VERSION: u32 = 2;

/// The first version whose workers can give their session away.
pub const RENEWS_SINCE: u32 = 2;

/// The oldest version that a supervisor of this release accepts from a worker.
pub const OLDEST_VERSION: u32 = 1;

/// A line of the link, newline excluded.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// Bytes that go with a hand-over: what was read of a connection and not answered.
pub const MAX_HAND_OVER_BYTES: usize = 4 << 20;

/// The state line that a worker pushes.
pub const MAX_STATE_BYTES: usize = 4 << 10;

/// What scvd tells a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToWorker {
    /// First message.
    Hello {
        /// [`VERSION`] of the supervisor.
        link_version: u32,
        /// The supervisor's release.
        release: String,
        /// The supervisor's process.
        pid: i32,
    },
    /// The worker is where it should be; it may start processes from now on.
    Go {
        /// The scope that was delegated to it, where it is in one: it gives each run a cgroup.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<String>,
    },
    /// A client of `session_id`. A spare becomes that session's worker. A descriptor and
    /// `len` bytes come with it: the message that named the session, and what followed.
    Client {
        /// Of this hand-over; the answer repeats it.
        id: u64,
        /// The session.
        session_id: SessionId,
        /// What the connection asked for and gets.
        features: Vec<String>,
        /// Who it said it is.
        peer: Peer,
        /// Bytes after this line.
        len: usize,
    },
    /// Starts a wanted session without a client.
    Resume {
        /// The session.
        session_id: SessionId,
    },
    /// Give the session and its clients away as soon as it is idle: they go to a worker of the
    /// supervisor's release.
    Renew {},
    /// The session of another worker, with its lock as the descriptor; the `len` bytes are the
    /// secret part of its environment, as JSON. A spare becomes that session's worker.
    Take {
        /// The session.
        session_id: SessionId,
        /// The last number that was used.
        seq: u64,
        /// The number of the next client.
        next_client: u64,
        /// [`ToWorker::Moved`] that follow.
        clients: usize,
        /// Bytes after this line.
        len: usize,
    },
    /// A client of the session that was taken, with its connection and what was read of it.
    Moved {
        /// Who it is, and what it has been told.
        client: Box<MovedClient>,
        /// Bytes after this line.
        len: usize,
    },
    /// The worker may leave now: nothing was handed to it.
    MayLeave {},
    /// End all runs, journal why, exit.
    End {
        /// `stopped` (the supervisor stops) or `closed` (the session was closed from outside).
        reason: EndReason,
    },
    /// End one run, as cancelled.
    Kill {
        /// The run.
        handle: String,
    },
    /// A message of a newer supervisor.
    #[serde(other)]
    Unknown,
}

/// A client that changes from one worker to another, and does not notice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MovedClient {
    /// Its number in the session.
    pub number: u64,
    /// Who it said it is.
    pub peer: Peer,
    /// What it asked for and gets.
    pub features: Vec<String>,
    /// Whether it approves everything unasked.
    pub auto_approve: bool,
    /// Its request that joined the session.
    pub request_id: String,
    /// The last number that it was sent.
    pub last_seq: u64,
}

/// Why a worker has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The supervisor stops everything.
    Stopped,
    /// Somebody closed this session.
    Closed,
}

/// What a worker tells scvd.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToSupervisor {
    /// First message.
    Hello {
        /// [`VERSION`] of the worker.
        link_version: u32,
        /// The worker's release.
        release: String,
        /// The worker's process.
        pid: i32,
        /// The session that it runs; none for a spare.
        session_id: Option<SessionId>,
    },
    /// The hand-over was taken; scvd closes its own descriptor.
    Taken {
        /// Of the hand-over.
        id: u64,
    },
    /// The hand-over cannot be taken; scvd answers the client and may try another worker.
    Refused {
        /// Of the hand-over.
        id: u64,
        /// In words, for the client.
        reason: String,
        /// For programs; `session_busy` where it is missing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<ErrorCode>,
    },
    /// What the session does now, when that has changed; at most [`MAX_STATE_BYTES`].
    State {
        /// The session, as it stands in lists.
        entry: Box<SessionEntry>,
    },
    /// A client on its way to the worker that comes next, with its connection and what was read of it.
    Client {
        /// Who it is, and what it has been told.
        client: Box<MovedClient>,
        /// Bytes after this line.
        len: usize,
    },
    /// A client that was handed over and not looked at yet, on the same way.
    Unheard {
        /// What the connection asked for and gets.
        features: Vec<String>,
        /// Who it said it is.
        peer: Peer,
        /// Bytes after this line.
        len: usize,
    },
    /// The session is given away, with its lock as the descriptor and the secret part of its
    /// environment. The worker exits.
    Moved {
        /// The last number that was used.
        seq: u64,
        /// The number of the next client.
        next_client: u64,
        /// Bytes after this line.
        len: usize,
    },
    /// The worker wants to leave; it waits for [`ToWorker::MayLeave`].
    Leaving {
        /// What the session is after that.
        state: crate::protocol::control::SessionState,
    },
    /// A message of a newer worker.
    #[serde(other)]
    Unknown,
}

impl ToWorker {
    /// The bytes that follow this message; with them comes a descriptor.
    pub fn raw(&self) -> Option<usize> {
        match self {
            Self::Client { len, .. } | Self::Take { len, .. } | Self::Moved { len, .. } => Some(*len),
            _ => None,
        }
    }
}

impl ToSupervisor {
    /// The bytes that follow this message; with them comes a descriptor.
    pub fn raw(&self) -> Option<usize> {
        match self {
            Self::Client { len, .. } | Self::Unheard { len, .. } | Self::Moved { len, .. } => Some(*len),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
