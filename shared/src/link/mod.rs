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

/// The version of this link's messages.
pub const VERSION: u32 = 1;

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
    /// The worker wants to leave; it waits for [`ToWorker::MayLeave`].
    Leaving {
        /// What the session is after that.
        state: crate::protocol::control::SessionState,
    },
    /// A message of a newer worker.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests;
