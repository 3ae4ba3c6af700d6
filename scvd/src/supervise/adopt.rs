//! Finds the workers of an earlier supervisor, and what is left of those that died meanwhile.

use std::rc::Rc;
use std::time::Duration;

use shared::fs;
use shared::layout::Layout;
use shared::process::Identity;
use tokio::time::timeout;
use tracing::{info, warn};

use super::act::apply;
use super::life::{self, Process, enter};
use super::state::{Event, State};
use super::table::WorkerId;
use super::{exits, greet, records};
use crate::daemon::Daemon;

/// The verdict on all workers: theirs takes 2 seconds, and what follows milliseconds.
const ALL_WITHIN: Duration = Duration::from_secs(5);

/// More bundles than this are not looked at in one round.
const MAX_BUNDLES: usize = 8192;

/// The bundles on disk.
pub(crate) fn bundles(layout: &Layout) -> impl Iterator<Item = WorkerId> + use<> {
    let found = std::fs::read_dir(layout.workers()).into_iter().flatten().flatten().take(MAX_BUNDLES);
    found.filter_map(|bundle| bundle.file_name().into_string().ok())
}

/// Greets the workers that are there, all at once. Returns when each has said hello or has been
/// found dead or deaf; what was left of those is gone then.
pub(crate) async fn adopt(daemon: &Rc<Daemon>) {
    let mut started = Vec::new();
    for id in bundles(&daemon.layout) {
        let Some(identity) = identity(&daemon.layout, &id).filter(Identity::is_alive) else {
            // The orphans of all dead ones are ended together, right after this.
            forget(daemon, &id);
            continue;
        };
        enter(daemon, id.clone(), identity, false);
        tokio::task::spawn_local(life::watch(daemon.clone(), id.clone(), Process::Adopted));
        tokio::task::spawn_local(greet::converse(daemon.clone(), id.clone()));
        started.push(id);
    }
    // Each has its own time-out; this one is for a process that hangs in the kernel.
    if timeout(ALL_WITHIN, all_settled(daemon, &started)).await.is_err() {
        warn!("a worker that is neither alive nor gone is left for later");
    }
}

/// From now on we are in charge: workers that were given up meanwhile are ended.
pub(crate) fn pass_verdicts(daemon: &Rc<Daemon>) {
    daemon.reasons_to_stay_out.take();
    let table = daemon.workers.table.borrow();
    let deaf: Vec<WorkerId> = table.iter().filter(|(_, worker)| worker.is_deaf).map(|(id, _)| id.clone()).collect();
    drop(table);
    for id in deaf {
        apply(daemon, &id, &Event::Deaf);
    }
}

async fn all_settled(daemon: &Daemon, started: &[WorkerId]) {
    for id in started {
        let mut state = daemon.workers.state(id);
        while matches!(state, Some(State::Starting | State::Dead { .. })) && !daemon.workers.is_deaf(id) {
            daemon.changed.notified().await;
            state = daemon.workers.state(id);
        }
        if let Some(state) = state {
            info!(id, ?state, "adopted");
        } else {
            warn!(id, "a worker was dead or deaf; it was ended");
        }
    }
}

/// Ends what is left of a worker that is no worker of ours.
pub(crate) async fn sweep(daemon: Rc<Daemon>, id: WorkerId) {
    // A worker that has just been started by hand, or whose file came late, is adopted.
    match identity(&daemon.layout, &id).filter(Identity::is_alive) {
        Some(identity) if !daemon.workers.has(&id) => {
            enter(&daemon, id.clone(), identity, false);
            tokio::task::spawn_local(life::watch(daemon.clone(), id.clone(), Process::Adopted));
            greet::converse(daemon, id).await;
        }
        Some(_) => {}
        None => forget(&daemon, &id),
    }
}

fn identity(layout: &Layout, id: &str) -> Option<Identity> {
    let json = fs::read_bounded(&layout.worker(id).worker(), 4096).ok()?;
    serde_json::from_slice(&json).ok()
}

fn forget(daemon: &Daemon, id: &str) {
    info!(id, "a worker ended while no supervisor ran: {}", exits::recorded(&daemon.layout, id));
    if let Some(identity) = identity(&daemon.layout, id) {
        records::remove_of(&daemon.layout, &identity);
    }
    life::remove_bundle(daemon, id);
}
