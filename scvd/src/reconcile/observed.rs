//! What is.

use std::collections::BTreeSet;
use std::time::Instant;

use shared::protocol::SessionId;

use crate::daemon::Daemon;
use crate::supervise::{Tally, bundles};

/// What is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// Sessions that have a worker, are about to get one, or are being removed.
    pub(crate) sessions: BTreeSet<SessionId>,
    /// Workers without a session, ready.
    pub(crate) spares: usize,
    /// Workers that have not said hello.
    pub(crate) starting: usize,
    /// Sessions that wait for a worker.
    pub(crate) waiting: usize,
    /// When a worker last took a client.
    pub(crate) last_taken: Option<Instant>,
    /// Who died.
    pub(crate) tally: Tally,
    /// Whether our socket is where clients look for it.
    pub(crate) socket: bool,
    /// Bundles that belong to no worker of ours.
    pub(crate) abandoned: Vec<String>,
    /// Since when there is neither a client nor a session.
    pub(crate) idle_since: Option<Instant>,
}

impl Observed {
    /// Looks. Constant work for each worker and bundle; no other process is looked at.
    pub(crate) fn look(daemon: &Daemon, now: Instant) -> Self {
        let workers = &daemon.workers;
        let mut sessions = workers.sessions();
        sessions.extend(daemon.removing.borrow().iter().copied());
        let idle = daemon.connections.now() == 0 && sessions.is_empty();
        let idle_since = idle.then(|| daemon.idle_since.get().unwrap_or(now));
        daemon.idle_since.set(idle_since);
        Self {
            sessions,
            spares: workers.spares(),
            starting: workers.starting(),
            waiting: workers.waiting(),
            last_taken: workers.last_taken(),
            tally: workers.tally(),
            socket: daemon.door.is_at_its_path(),
            abandoned: bundles(&daemon.layout).filter(|id| !workers.has(id)).collect(),
            idle_since,
        }
    }
}
