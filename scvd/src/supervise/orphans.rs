//! Ends what dead workers left.
//!
//! A worker is the reaper of what it starts, so whatever comes up to us, or to the guard above
//! us, is an orphan of a dead one. Where neither was the reaper (a supervisor started by hand
//! and killed), only the marks of a run are left to find it by.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use shared::process::{self, Identity, end_found, marked_orphans, tree_of};
use tracing::info;

use super::records::{self, records};
use crate::daemon::Daemon;

/// Where orphans are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Among our children and the guard's: the work is that of these lists.
    Family,
    /// Also among all processes of the machine, by the marks of a run. Reads each one's
    /// environment, some milliseconds in all: for starts and for other supervisors' workers.
    Marked,
}

/// Processes near us that are no orphans.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strangers {
    guard: Option<Identity>,
    left_alone: BTreeSet<i32>,
}

impl Strangers {
    /// What is there before anything of ours. `guarded_by` names the guard, and then the children
    /// that it had before it started us.
    pub(crate) fn before(guarded_by: Vec<i32>) -> Self {
        let mut guarded_by = guarded_by.into_iter();
        let guard = guarded_by.next().filter(|pid| *pid == parent()).and_then(|pid| Identity::of(pid).ok());
        // Whoever executed us may have left us children.
        Self { guard, left_alone: guarded_by.chain(process::children(own_pid())).collect() }
    }

    /// As [`before`](Self::before), for one that takes over: it is a child of the old supervisor
    /// and becomes one of the guard when that leaves.
    pub(crate) fn inherited(guarded_by: Vec<i32>) -> Self {
        let mut guarded_by = guarded_by.into_iter();
        let guard = guarded_by.next().and_then(|pid| Identity::of(pid).ok());
        Self { guard, left_alone: guarded_by.chain(process::children(own_pid())).collect() }
    }

    /// For the successor's `--guarded-by`; 0 stands for no guard.
    pub(crate) fn to_argument(&self) -> String {
        let guard = self.guard.as_ref().filter(|guard| guard.is_alive()).map_or(0, |guard| guard.pid);
        let pids: Vec<String> =
            std::iter::once(guard).chain(self.left_alone.iter().copied()).map(|pid| pid.to_string()).collect();
        pids.join(",")
    }

    /// Whether there was a guard and it is gone: nobody starts us again.
    pub(crate) fn guard_is_gone(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| !guard.is_alive())
    }

    /// The guard, as long as it is our parent: an init that took its place has other children.
    fn guard(&self) -> Option<i32> {
        self.guard.as_ref().map(|guard| guard.pid).filter(|pid| *pid == parent())
    }
}

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

fn parent() -> i32 {
    std::os::unix::process::parent_id().cast_signed()
}

/// Ends all orphans that are to be found, and removes the records of those whose owner is gone.
pub(crate) async fn end_orphans(daemon: &Rc<Daemon>, depth: Depth) -> Vec<String> {
    let is_orphan =
        |id: &Identity| !daemon.strangers.left_alone.contains(&id.pid) && !daemon.workers.pids().contains(&id.pid);
    let mut ended = daemon.family.end_adopted(is_orphan, Duration::ZERO).await;
    ended.extend(end_found(|| of_guard(daemon)).await);
    for record in records(&daemon.layout).iter().filter(|record| record.is_orphan()) {
        if let Some(process) = &record.process {
            ended.extend(end_found(|| tree_of(process)).await);
        }
        records::remove(&daemon.layout, record);
    }
    if depth == Depth::Marked {
        ended.extend(end_found(|| marked_orphans(&daemon.layout.instance())).await);
    }
    let names: Vec<String> = ended.into_iter().map(|ended| format!("{} ({})", ended.name, ended.pid)).collect();
    if !names.is_empty() {
        info!("ended what dead workers left: {}", names.join(", "));
        daemon.orphans_ended.set(daemon.orphans_ended.get() + names.len() as u64);
    }
    names
}

/// The orphans among the guard's children. Those of one that is ended come up in its place.
fn of_guard(daemon: &Daemon) -> Vec<Identity> {
    let Some(guard) = daemon.strangers.guard() else { return Vec::new() };
    let mut kept = daemon.workers.pids();
    kept.insert(own_pid());
    kept.extend(&daemon.strangers.left_alone);
    let orphans = process::children(guard).into_iter().filter(|pid| !kept.contains(pid));
    alive(orphans.filter_map(|pid| Identity::of(pid).ok()).collect())
}

fn alive(found: Vec<Identity>) -> Vec<Identity> {
    found.into_iter().filter(Identity::is_alive).collect()
}
