//! Which sessions changed at which revision. Pure, and bounded: what left is forgotten in time.

use std::collections::{BTreeMap, VecDeque};

use shared::protocol::SessionId;
use shared::protocol::server::Reply;

/// Sessions that left, and crashes, that are remembered. A watcher that has missed more gets the
/// whole again.
const REMEMBERED: usize = 1024;

/// What changed since a revision.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// These did.
    Changes {
        /// The revision now.
        rev: u64,
        /// Live sessions that are new or different.
        set: Vec<SessionId>,
        /// Sessions that are no longer live.
        gone: Vec<SessionId>,
    },
    /// Too much to remember.
    TooMuch,
}

/// The revisions.
#[derive(Debug, Default)]
pub(super) struct Changes {
    rev: u64,
    set: BTreeMap<SessionId, u64>,
    gone: VecDeque<(u64, SessionId)>,
    crashes: VecDeque<(u64, Reply)>,
    /// The last revision of which something was forgotten.
    forgotten: u64,
}

impl Changes {
    /// A session is new or different. Returns the revision, as the others do.
    pub(super) fn changed(&mut self, session: SessionId) -> u64 {
        self.rev += 1;
        self.set.insert(session, self.rev);
        self.rev
    }

    /// A session is no longer live.
    pub(super) fn gone(&mut self, session: SessionId) -> u64 {
        self.rev += 1;
        self.set.remove(&session);
        self.gone.push_back((self.rev, session));
        if self.gone.len() > REMEMBERED
            && let Some((rev, _)) = self.gone.pop_front()
        {
            self.forgotten = rev;
        }
        self.rev
    }

    /// A session's worker died.
    pub(super) fn crashed(&mut self, reply: Reply) -> u64 {
        self.rev += 1;
        self.crashes.push_back((self.rev, reply));
        if self.crashes.len() > REMEMBERED {
            self.crashes.pop_front();
        }
        self.rev
    }

    /// What changed after `rev`.
    pub(super) fn since(&self, rev: u64) -> Since {
        if rev < self.forgotten {
            return Since::TooMuch;
        }
        let set = self.set.iter().filter(|(_, at)| **at > rev).map(|(session, _)| *session).collect();
        let gone = self.gone.iter().filter(|(at, session)| *at > rev && !self.set.contains_key(session));
        Since::Changes { rev: self.rev, set, gone: gone.map(|(_, session)| *session).collect() }
    }

    /// The first crash after `rev`.
    pub(super) fn crash_after(&self, rev: u64) -> Option<(u64, Reply)> {
        self.crashes.iter().find(|(at, _)| *at > rev).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(rev: u64, set: &[SessionId], gone: &[SessionId]) -> Since {
        Since::Changes { rev, set: set.to_vec(), gone: gone.to_vec() }
    }

    #[test]
    fn many_changes_of_a_session_are_one() {
        let (a, b) = (SessionId::new(), SessionId::new());
        let mut hub = Changes::default();
        hub.changed(a);
        hub.changed(b);
        hub.changed(a);
        assert_eq!(hub.since(0), changes(3, &[a, b], &[]));
        assert_eq!(hub.since(2), changes(3, &[a], &[]));
        assert_eq!(hub.since(3), changes(3, &[], &[]));
    }

    #[test]
    fn a_session_that_left_and_came_back_did_not_leave() {
        let a = SessionId::new();
        let mut hub = Changes::default();
        hub.changed(a);
        hub.gone(a);
        assert_eq!(hub.since(1), changes(2, &[], &[a]));
        hub.changed(a);
        assert_eq!(hub.since(1), changes(3, &[a], &[]));
    }

    #[test]
    fn who_missed_more_than_is_remembered_gets_the_whole_again() {
        let mut hub = Changes::default();
        for _ in 0..=REMEMBERED {
            hub.gone(SessionId::new());
        }
        assert_eq!(hub.since(0), Since::TooMuch);
        assert!(matches!(hub.since(1), Since::Changes { .. }));
    }
}
