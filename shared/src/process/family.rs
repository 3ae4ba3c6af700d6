//! The direct children of this process: ours, and those that came up to it when their parent died.
//!
//! Ours are waited by whoever holds their handle, the others here, each by its own pid. The kernel
//! keeps one list of children per process, so there is one register per process behind all
//! [`Family`] values. Every program has to be started through it: what is not registered counts
//! as adopted, and is ended with the strays.

use std::collections::HashSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Resource, WaitId, WaitIdOptions, waitid};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::cgroup::Cgroup;
use super::children::{children, seen_tree};
use super::end::{self, Ended, Look};
use super::identity::Identity;
use super::limits::Lent;
use super::tag::{Marks, Tag};

/// The children of this process. A cheap handle; all of them are one.
#[derive(Clone, Debug)]
pub struct Family(&'static Mutex<Register>);

#[derive(Debug)]
struct Register {
    /// Children that somebody holds a handle of.
    ours: Option<HashSet<i32>>,
    /// Runs that have not ended.
    runs: Vec<Tag>,
    /// The soft limit of open files that children get, where it is not our own.
    files: Option<u64>,
    /// The cgroup that was delegated to this process: each run gets one of its own below it.
    cgroup: Option<Cgroup>,
    /// Runs that nobody holds any more; their processes were sent SIGKILL.
    abandoned: Vec<(Child, i32, Tag)>,
}

static REGISTER: Mutex<Register> =
    Mutex::new(Register { ours: None, runs: Vec::new(), files: None, cgroup: None, abandoned: Vec::new() });

impl Register {
    fn ours(&mut self) -> &mut HashSet<i32> {
        self.ours.get_or_insert_default()
    }

    fn adopted(&mut self) -> Vec<i32> {
        let mut children = children(rustix::process::getpid().as_raw_pid());
        children.retain(|pid| !self.ours().contains(pid));
        children
    }
}

impl Family {
    /// The children of this process. Fails where the kernel does not tell who they are.
    pub fn new() -> io::Result<Self> {
        Identity::current().map(|_| Self(&REGISTER))
    }

    fn register(&self) -> MutexGuard<'static, Register> {
        // Every change is a single push or removal, so a panic elsewhere leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on children get `soft` as their soft limit of open files: this process may have
    /// raised its own, and old programs break over a large one.
    pub fn give_back_files(&self, soft: u64) {
        self.register().files = Some(soft);
    }

    /// From now on every run gets a cgroup of its own below `delegated`, in which this process is.
    pub fn keep_runs_in(&self, delegated: Cgroup) {
        self.register().cgroup = Some(delegated);
    }

    /// The cgroup of a run that was started after [`Family::keep_runs_in`].
    pub(super) fn cgroup_of(&self, tag: &Tag) -> Option<Cgroup> {
        let register = self.register();
        let delegated = register.cgroup.as_ref()?;
        // If this process could not leave the run's cgroup, nobody may kill what is in it.
        let own = Cgroup::of(rustix::process::getpid().as_raw_pid()).ok().flatten();
        Some(delegated.child(&run_name(tag))).filter(|run| run.exists() && own.as_ref() == Some(delegated))
    }

    /// How many processes below the delegated cgroup the kernel has killed because memory ran out;
    /// none where nobody counts them.
    pub(super) fn oom_kills(&self) -> Option<u64> {
        self.register().cgroup.as_ref()?.oom_kills()
    }

    /// Starts `command` and registers it. It counts as ours until [`Family::forget`].
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        self.spawn_tagged(command, None)
    }

    pub(super) fn spawn_tagged(&self, command: &mut Command, tag: Option<&Tag>) -> io::Result<Child> {
        // Held from before the start until it is registered: nobody takes the new child for an
        // adopted one, and nobody else's child gets the tag.
        let mut register = self.register();
        let limits = (tag.map(Tag::on_limits), register.files.map(|soft| Lent::set(Resource::Nofile, soft, None)));
        let guest = tag.zip(register.cgroup.as_ref()).and_then(|(tag, home)| Guest::enter(home, &run_name(tag)));
        let child = command.spawn();
        drop(limits);
        if let Some(guest) = guest {
            guest.leave(child.is_err());
        }
        let child = child?;
        if let Some(pid) = child.id() {
            register.ours().insert(pid.cast_signed());
        }
        register.runs.extend(tag.cloned());
        Ok(child)
    }

    /// `pid` was waited: it is no child any more.
    pub fn forget(&self, pid: i32) {
        self.register().ours().remove(&pid);
    }

    /// The direct children that are not ours, dead or alive.
    pub fn adopted(&self) -> Vec<Identity> {
        let pids = self.register().adopted();
        pids.into_iter().filter_map(|pid| Identity::of(pid).ok()).collect()
    }

    /// Collects the adopted children that have exited, and what abandoned runs left. To be called
    /// at SIGCHLD; returns how many were collected.
    pub fn reap_adopted(&self) -> usize {
        let mut register = self.register();
        let mut count = 0;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        for pid in register.adopted().into_iter().filter_map(Pid::from_raw) {
            if matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_))) {
                count += 1;
            }
        }
        count + register.reap_abandoned()
    }

    /// Collects what exits, for ever. One task of the process awaits it.
    pub async fn tend(&self) -> io::Result<std::convert::Infallible> {
        let mut child = signal(SignalKind::child())?;
        loop {
            self.reap_adopted();
            // Never `None`: the handler stays as long as the process.
            child.recv().await;
        }
    }

    /// Ends the adopted children for which `mine` holds, with all that descends from them:
    /// SIGTERM and up to `grace` (none if that is zero), then SIGKILL, until two looks find none.
    /// Names what was ended; what exits meanwhile is collected.
    pub async fn end_adopted(&self, mine: impl Fn(&Identity) -> bool, grace: Duration) -> Vec<Ended> {
        let ended = end::end(|| self.strays(&mine), end::Whole::default(), grace).await;
        self.reap_adopted();
        ended
    }

    /// Waits until nothing is left of runs that were dropped without their end, at most `limit`.
    /// Their processes were sent SIGKILL, which takes a moment.
    pub async fn abandoned_are_gone(&self, limit: Duration) {
        /// No event tells that the last of a tree is gone; a killed process needs about this long.
        const LOOK_EVERY: Duration = Duration::from_millis(2);
        let gone = async {
            loop {
                self.reap_adopted();
                if self.register().abandoned.is_empty() {
                    return;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        // What survives SIGKILL hangs in the kernel, and is the supervisor's to end.
        let _ = tokio::time::timeout(limit, gone).await;
    }

    /// The living adopted children for which `mine` holds, with their trees.
    pub(super) fn strays(&self, mine: impl Fn(&Identity) -> bool) -> Look {
        self.reap_adopted();
        let (living, dead): (Vec<_>, Vec<_>) = self.adopted().into_iter().partition(Identity::is_alive);
        let roots: Vec<i32> = living.iter().filter(|id| mine(id)).map(|id| id.pid).collect();
        let living = if roots.is_empty() { Vec::new() } else { seen_tree(&roots) };
        let moved = !dead.is_empty() || roots.iter().any(|root| living.iter().all(|seen| seen.id.pid != *root));
        Look { living, moved }
    }

    /// Whether an adopted child belongs to the run `tag`, which is about to end.
    ///
    /// What names no run that goes on is a leftover, and is taken too. Only what carries no mark
    /// at all is left to the last run that ends, since it may be of any of them.
    pub(super) fn is_of(&self, id: &Identity, tag: &Tag) -> bool {
        // Where the kernel keeps them apart there is nothing to conclude from marks.
        if let Some(run) = self.run_by_cgroup(id.pid) {
            return run == run_name(tag);
        }
        let marks = Marks::of(id.pid);
        let register = self.register();
        let mut others = register.runs.iter().filter(|run| *run != tag).peekable();
        marks.names(tag) || if marks.is_empty() { others.peek().is_none() } else { !others.any(|run| marks.names(run)) }
    }

    /// Whether an adopted child belongs to a run that has not ended.
    pub fn is_of_a_run(&self, id: &Identity) -> bool {
        if let Some(run) = self.run_by_cgroup(id.pid) {
            return self.register().runs.iter().any(|tag| run_name(tag) == run);
        }
        let marks = Marks::of(id.pid);
        self.register().runs.iter().any(|run| marks.names(run))
    }

    /// The name of the run's cgroup that a process is in or below; none if it is in no run's.
    fn run_by_cgroup(&self, pid: i32) -> Option<String> {
        let delegated = self.register().cgroup.clone()?;
        let name = Cgroup::of(pid).ok().flatten()?.first_below(&delegated)?;
        name.starts_with(RUN_PREFIX).then_some(name)
    }

    /// Collects the leader of a run (it has exited) and strikes the run off.
    pub(super) fn collect(&self, child: &mut Child, pid: i32, tag: &Tag) {
        let mut register = self.register();
        // Under the lock: the pid is free now, and another thread may be about to get it.
        let _ = child.try_wait();
        register.ours().remove(&pid);
        register.runs.retain(|run| run != tag);
    }

    /// Takes over a run that nobody ends any more.
    pub(super) fn abandon(&self, child: Child, pid: i32, tag: Tag) {
        self.register().abandoned.push((child, pid, tag));
        self.reap_adopted();
    }
}

/// The name of a run's cgroup.
const RUN_PREFIX: &str = "run-";

fn run_name(tag: &Tag) -> String {
    format!("{RUN_PREFIX}{}", tag.handle)
}

/// This process, for a moment in the cgroup of the run that it starts: what it starts there is in
/// it from its first instruction. Moving there and back takes some 50 µs, far less than a launcher
/// that moves itself. Best effort: a run without a cgroup is ended by the other nets.
struct Guest<'a> {
    home: &'a Cgroup,
    run: Cgroup,
}

impl<'a> Guest<'a> {
    fn enter(home: &'a Cgroup, run: &str) -> Option<Self> {
        let run = home.child(run);
        let entered = run.create().and_then(|()| run.enter());
        if let Err(error) = entered {
            tracing::warn!(%error, run = run.name(), "a run has no cgroup of its own");
            let _ = run.remove();
            return None;
        }
        Some(Self { home, run })
    }

    fn leave(self, unused: bool) {
        if let Err(error) = self.home.enter() {
            // Never end this process with the run: its cgroup is not to be killed then.
            tracing::error!(%error, run = self.run.name(), "cannot leave the cgroup of a run");
        }
        if unused {
            let _ = self.run.remove();
        }
    }
}

impl Register {
    /// Kills what abandoned runs still have and collects their leaders.
    fn reap_abandoned(&mut self) -> usize {
        let mut count = 0;
        for (mut child, pid, tag) in std::mem::take(&mut self.abandoned) {
            let exited = !matches!(child.try_wait(), Ok(None));
            if exited && self.ours().remove(&pid) {
                count += 1;
            }
            let is_left = |pid: &i32| Marks::of(*pid).names(&tag);
            let roots: Vec<i32> = self.adopted().into_iter().filter(is_left).collect();
            let left = seen_tree(&roots);
            for seen in &left {
                let _ = seen.id.signal(rustix::process::Signal::KILL);
            }
            if exited && left.is_empty() {
                self.runs.retain(|run| *run != tag);
            } else {
                self.abandoned.push((child, pid, tag));
            }
        }
        count
    }
}
