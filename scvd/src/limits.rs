//! How many descriptors the supervisor may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Nobody needs more, and some programs loop over all of them.
const ENOUGH: u64 = 1 << 20;

/// For what is no connection: the socket, the log, bundles, records that are being read.
const OWN: u64 = 64;

/// Descriptors of one worker: its process, its link, its pipe.
const PER_WORKER: u64 = 3;

/// The limit on open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// What the soft limit was; workers give it back to what they start.
    pub(crate) original: Option<u64>,
    /// What it is now.
    pub(crate) now: u64,
}

impl Descriptors {
    /// Raises the soft limit to the hard one.
    pub(crate) fn raise() -> Self {
        let Rlimit { current: original, maximum } = getrlimit(Resource::Nofile);
        let wish = maximum.unwrap_or(ENOUGH).min(ENOUGH);
        let soft = original.unwrap_or(ENOUGH);
        if soft < wish && setrlimit(Resource::Nofile, Rlimit { current: Some(wish), maximum }).is_ok() {
            return Self { original, now: wish };
        }
        Self { original, now: soft }
    }

    /// Connections that may be open at once, with room left for `max_sessions` workers. Where the
    /// limit is low, half of it.
    pub(crate) fn max_connections(self, max_sessions: usize) -> usize {
        let workers = PER_WORKER.saturating_mul(max_sessions as u64);
        let room = self.now.saturating_sub(OWN).saturating_sub(workers).max(self.now / 2);
        usize::try_from(room).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_the_workers() {
        let limit = |now| Descriptors { original: None, now };
        assert_eq!(limit(1 << 20).max_connections(512), (1 << 20) - 64 - 1536);
        assert_eq!(limit(1024).max_connections(512), 512);
        assert_eq!(limit(0).max_connections(512), 0);
    }
}
