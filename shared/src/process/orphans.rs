//! What dead workers left, found by the marks of an instance where no family tree leads to it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::children::{Seen, tree};
use super::end::{self, Ended, Look};
use super::identity::Identity;
use super::proc::{self, Stat};
use super::tag::Marks;

/// SIGKILL takes effect at once; what is not gone by then is tried again by whoever looks next.
const KILL_WITHIN: Duration = Duration::from_secs(2);

/// The tree of `process`; nothing once its pid is free or somebody else's.
pub fn tree_of(process: &Identity) -> Vec<Identity> {
    if process.is_alive() { tree(process.pid) } else { Vec::new() }
}

/// Processes that carry the marks of a run of `instance` and whose worker is gone. Never this
/// process nor what is above it: it may run inside of a run itself.
///
/// Reads the environment of every process of the machine, some milliseconds in all.
pub fn marked_orphans(instance: &str) -> Vec<Identity> {
    let me = std::process::id().cast_signed();
    let pids = proc::numbers("/proc").unwrap_or_default();
    let carriers: BTreeSet<i32> =
        pids.into_iter().filter(|pid| *pid != me && Marks::of(*pid).names_instance(instance)).collect();
    let tops = carriers
        .iter()
        .filter(|pid| parent_of(**pid).is_some_and(|parent| !carriers.contains(&parent) && !is_worker(parent)));
    tops.filter(|pid| !is_above(**pid, me)).flat_map(|pid| tree(*pid)).collect()
}

/// Sends SIGKILL to what `look` finds until two looks find nothing; what was ended.
///
/// What hangs in the kernel for longer than 2 s is left, and named in the log.
pub async fn end_found(look: impl Fn() -> Vec<Identity>) -> Vec<Ended> {
    end::kill(|| Look { living: look().iter().filter_map(same).collect(), moved: false }, KILL_WITHIN).await
}

fn same(id: &Identity) -> Option<Seen> {
    Seen::of(id.pid).filter(|seen| seen.id == *id)
}

/// Whether `pid` is an ancestor of `me`.
fn is_above(pid: i32, me: i32) -> bool {
    let mut above = parent_of(me);
    while let Some(process) = above.filter(|process| *process > 1) {
        if process == pid {
            return true;
        }
        above = parent_of(process);
    }
    false
}

/// Whether `pid` executes our worker program: what it started is its own to end.
fn is_worker(pid: i32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    // The kernel appends ` (deleted)` to the name of a file that was replaced.
    program.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"scv-worker"))
}

fn parent_of(pid: i32) -> Option<i32> {
    Stat::of(pid).ok().map(|stat| stat.parent)
}
