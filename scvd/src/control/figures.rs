//! What a worker and all that it started use, as its scope's cgroup has it.

use crate::daemon::Daemon;

/// Each is none where nobody counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) memory_bytes: Option<u64>,
    pub(super) cpu_ms: Option<u64>,
}

impl Figures {
    /// Those of a worker.
    pub(super) fn of(daemon: &Daemon, worker: &str) -> Self {
        let Some(scopes) = &daemon.scopes else { return Self::default() };
        let cgroup = scopes.cgroup(worker);
        Self { memory_bytes: cgroup.memory_bytes(), cpu_ms: cgroup.cpu_usec().map(|usec| usec / 1000) }
    }
}
