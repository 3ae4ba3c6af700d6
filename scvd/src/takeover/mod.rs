//! A warm restart: one supervisor hands everything over to the next and leaves, and workers and
//! clients do not notice.
//!
//! The old one starts the new one, which says that it is able to ([`ToPredecessor::Prepared`]).
//! Then clients are parked, work under way is finished, and lock, socket and clients go over a
//! socket pair ([`give`], [`take`]). The new one adopts the workers as it would after a crash and
//! says `up`. Until then the old one can still end it and go on; from `yours` on it does nothing
//! any more. So at every step one of both commands the workers, and the lock, which is one open
//! file in both hands, is held for as long as one of them lives.

mod failure;
mod give;
mod parking;
mod take;

use serde::{Deserialize, Serialize};
use shared::protocol::client::Peer;

pub(crate) use give::{GivenUp, Restart, restart};
pub(crate) use parking::{Inherited, Parked, Parking, Stage};
pub(crate) use take::{Estate, Heir};

/// The version of these messages. The older side starts the newer one, which says its own in
/// `prepared`; the older one gives up on a version that it does not know.
const VERSION: u32 = 1;

/// What the old supervisor says. `len` bytes and a descriptor come with the first three.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ToSuccessor {
    /// The locked file of the home.
    Lock {
        /// The old supervisor's process.
        pid: i32,
        /// The soft limit on files that it was started with.
        nofile: Option<u64>,
        /// Processes of dead workers that it has ended.
        orphans_ended: u64,
        /// Whether idle workers are to be renewed even if they are of the same release.
        when_idle: bool,
        /// 0.
        len: usize,
    },
    /// The listening socket.
    Listener {
        /// Whether the service manager made it.
        is_inherited: bool,
        /// 0.
        len: usize,
    },
    /// A client that has no session.
    Client {
        /// What it said in `initialize`; none if it has not said it yet.
        greeting: Option<Greeted>,
        /// Its request to watch.
        watch: Option<String>,
        /// Its request to restart, which is answered by whoever is in charge then.
        restart: Option<String>,
        /// Bytes that were read of it and not answered.
        len: usize,
    },
    /// That was all: adopt the workers.
    Begin {},
    /// The old supervisor does nothing any more.
    Yours {},
    /// A message of a newer release.
    #[serde(other)]
    Unknown,
}

/// A client's `initialize`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Greeted {
    /// Who it is.
    pub(crate) peer: Peer,
    /// Which of our additions it gets.
    pub(crate) features: Vec<String>,
}

/// What the new supervisor says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ToPredecessor {
    /// It has read its configuration and found its worker program.
    Prepared {
        /// Of these messages.
        version: u32,
        /// The new release.
        release: String,
    },
    /// It has greeted every worker and would serve clients.
    Up {},
    /// A message of a newer release.
    #[serde(other)]
    Unknown,
}

/// The bytes that follow a message.
fn raw(message: &ToSuccessor) -> Option<usize> {
    match message {
        ToSuccessor::Lock { len, .. } | ToSuccessor::Listener { len, .. } | ToSuccessor::Client { len, .. } => {
            Some(*len)
        }
        ToSuccessor::Begin {} | ToSuccessor::Yours {} | ToSuccessor::Unknown => None,
    }
}
