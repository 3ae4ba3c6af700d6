//! `status`: health and counts, without a look at any session's directory.

use std::time::Instant;

use shared::protocol::control::{Delegations, SessionState, Sessions, Status, WorkerEntry};

use super::figures::Figures;
use crate::daemon::Daemon;
use crate::supervise::records;

/// What every answer of `daemon.control` has.
pub(crate) fn status(daemon: &Daemon) -> Status {
    let live = daemon.workers.entries();
    let idle = live.iter().filter(|entry| entry.state == SessionState::Idle).count();
    Status {
        version: shared::RELEASE.to_owned(),
        pid: std::process::id().cast_signed(),
        components: Vec::new(),
        delegations: counts(daemon),
        sessions: Some(Sessions {
            live: count(live.len()),
            idle: count(idle),
            hibernated: Some(count(daemon.index.ids().len().saturating_sub(live.len()))),
            ..Sessions::default()
        }),
        workers: workers(daemon),
        service: daemon.scopes.as_ref().map(crate::scopes::Scopes::service),
        started_unix_ms: Some(daemon.started_unix_ms),
        connections: Some(daemon.connections.now()),
        last_stop: daemon.lock.last_stop.clone(),
        orphans_ended: Some(daemon.orphans_ended.get()),
        unguarded: daemon.strangers.guard_is_gone(),
        config_error: daemon.config_error.borrow().clone(),
    }
}

fn workers(daemon: &Daemon) -> Vec<WorkerEntry> {
    let mut workers = daemon.workers.list(Instant::now());
    for worker in &mut workers {
        let Figures { memory_bytes, cpu_ms } = Figures::of(daemon, &worker.id);
        (worker.memory_bytes, worker.cpu_ms) = (memory_bytes, cpu_ms);
    }
    workers
}

fn counts(daemon: &Daemon) -> Delegations {
    let records = records(&daemon.layout);
    let idle = records.iter().filter(|record| record.idle_since_unix.is_some()).count();
    Delegations {
        active: count(records.len() - idle),
        idle: count(idle),
        reaped: daemon.orphans_ended.get(),
        ..Delegations::default()
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
