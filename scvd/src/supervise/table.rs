//! The table of workers: who is there, in which state, and what it said last.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use shared::process::{Exit, Identity};
use shared::protocol::SessionId;
use shared::protocol::control::{SessionEntry, SessionState, WorkerEntry};
use tokio::sync::watch;

use super::claim::Waiting;
use super::link::{Given, Link};
use super::state::State;
use super::tally::{Tally, Who};

/// The name of a worker's bundle: 12 hex digits.
pub(crate) type WorkerId = String;

/// One worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) state: State,
    pub(super) identity: Identity,
    /// Whether we started it, so that what it leaves comes up to us.
    pub(super) ours: bool,
    pub(super) release: String,
    /// The version of its link.
    pub(super) link_version: u32,
    pub(super) link: Option<Link>,
    /// How many links there have been.
    pub(super) links: u64,
    /// Clients of the session that it is giving away.
    pub(super) moving: Vec<Given>,
    /// What its session does, as it said last.
    pub(super) entry: Option<SessionEntry>,
    /// How it ended, once it did.
    pub(super) exit: Exit,
    /// Why it was given up, for whoever waits for it.
    pub(super) complaint: Option<String>,
    /// Given up before we were in charge; its verdict waits until then.
    pub(super) is_deaf: bool,
    /// Closed when it is gone with everything that it left.
    pub(super) gone: watch::Sender<()>,
}

/// All workers. Borrows end before any await.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    pub(super) table: RefCell<BTreeMap<WorkerId, Worker>>,
    pub(super) waiting: RefCell<Waiting>,
    /// Sessions that were given away and have no worker yet.
    pub(super) in_transit: RefCell<BTreeMap<SessionId, watch::Sender<()>>>,
    pub(super) tally: RefCell<Tally>,
    pub(super) hand_overs: Cell<u64>,
    pub(super) last_taken: Cell<Option<Instant>>,
}

impl Workers {
    /// Whether there is a worker of that id.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.table.borrow().contains_key(id)
    }

    /// Whether it was given up before we were in charge.
    pub(super) fn is_deaf(&self, id: &str) -> bool {
        self.table.borrow().get(id).is_some_and(|worker| worker.is_deaf)
    }

    /// Sessions that have a worker or wait for one.
    pub(crate) fn sessions(&self) -> BTreeSet<SessionId> {
        let table = self.table.borrow();
        table.values().filter_map(|worker| worker.state.session()).chain(self.waiting.borrow().sessions()).collect()
    }

    /// When a worker last took a client.
    pub(crate) fn last_taken(&self) -> Option<Instant> {
        self.last_taken.get()
    }

    /// Workers without a session, ready for one.
    pub(crate) fn spares(&self) -> usize {
        self.count(|worker| worker.state == State::Spare)
    }

    /// Workers that have not said hello.
    pub(crate) fn starting(&self) -> usize {
        self.count(|worker| worker.state == State::Starting)
    }

    /// Whether each worker is where it stays.
    pub(super) fn are_settled(&self) -> bool {
        let moves = |worker: &Worker| match worker.state {
            State::Starting | State::Leaving { .. } | State::Ending { .. } | State::Dead { .. } => true,
            State::Serving { owed, .. } => owed > 0,
            State::Spare => false,
        };
        self.count(moves) == 0
    }

    /// Sessions that wait for a worker.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.borrow().sessions().count()
    }

    /// A copy of the tally, for a decision.
    pub(crate) fn tally(&self) -> Tally {
        self.tally.borrow().clone()
    }

    /// Drops what no longer counts.
    pub(crate) fn prune(&self, now: Instant) {
        self.tally.borrow_mut().prune(now);
    }

    /// Forgets how often a session died.
    pub(crate) fn forgive(&self, session: SessionId) {
        self.tally.borrow_mut().forget(session);
    }

    /// Sessions that keep dying and were left down.
    pub(crate) fn down(&self) -> BTreeSet<SessionId> {
        self.tally.borrow().down().collect()
    }

    /// Why a session without a worker has none, if it died.
    pub(crate) fn why_down(&self, session: SessionId) -> Option<String> {
        self.tally.borrow().why(session)
    }

    /// The worker that has `session`, in whatever state.
    pub(crate) fn of_session(&self, session: SessionId) -> Option<WorkerId> {
        let table = self.table.borrow();
        table.iter().find(|(_, worker)| worker.state.session() == Some(session)).map(|(id, _)| id.clone())
    }

    /// Where a worker is.
    pub(crate) fn state(&self, id: &str) -> Option<State> {
        self.table.borrow().get(id).map(|worker| worker.state.clone())
    }

    /// The worker with that process.
    pub(crate) fn of_process(&self, owner: &Identity) -> Option<WorkerId> {
        let table = self.table.borrow();
        table.iter().find(|(_, worker)| worker.identity == *owner).map(|(id, _)| id.clone())
    }

    /// The pids of all workers that have not been buried.
    pub(crate) fn pids(&self) -> BTreeSet<i32> {
        self.table.borrow().values().map(|worker| worker.identity.pid).collect()
    }

    /// The live sessions as they stand in lists.
    pub(crate) fn entries(&self) -> Vec<SessionEntry> {
        self.table.borrow().values().filter_map(live_entry).collect()
    }

    /// One live session.
    pub(crate) fn entry(&self, session: SessionId) -> Option<SessionEntry> {
        let table = self.table.borrow();
        table.values().find(|worker| worker.state.session() == Some(session)).and_then(live_entry)
    }

    /// The worker processes, and the sessions that have none because they keep dying.
    pub(crate) fn list(&self, now: Instant) -> Vec<WorkerEntry> {
        let tally = self.tally.borrow();
        let table = self.table.borrow();
        let live = table.iter().map(|(id, worker)| {
            let session = worker.state.session();
            WorkerEntry {
                id: id.clone(),
                pid: worker.identity.pid,
                version: worker.release.clone(),
                role: session.map_or_else(|| "spare".to_owned(), |session| session.to_string()),
                recent_deaths: tally.recent(session.map_or(Who::Spare, Who::Session), now),
                ..WorkerEntry::default()
            }
        });
        let down = tally.down().map(|session| WorkerEntry {
            role: session.to_string(),
            recent_deaths: tally.recent(Who::Session(session), now),
            ..WorkerEntry::default()
        });
        live.chain(down).collect()
    }

    fn count(&self, is: impl Fn(&Worker) -> bool) -> usize {
        self.table.borrow().values().filter(|worker| is(worker)).count()
    }
}

fn live_entry(worker: &Worker) -> Option<SessionEntry> {
    let (State::Serving { session, .. } | State::Ending { session: Some(session) }) = worker.state else { return None };
    let mut entry = worker
        .entry
        .clone()
        // It has not said anything yet: it has just been given the session.
        .unwrap_or_else(|| SessionEntry { state: SessionState::Idle, ..SessionEntry::default() });
    entry.id = session.to_string();
    entry.worker_pid = Some(worker.identity.pid);
    entry.worker_version = Some(worker.release.clone()).filter(|release| release != shared::RELEASE);
    Some(entry)
}
