//! Ending processes for good: SIGTERM, a grace, SIGKILL, until two looks find nothing.
//!
//! What is to be ended is found again at each look, since a process may fork while it is ended.

use std::collections::HashSet;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, timeout_at};

use super::cgroup::Cgroup;
use super::children::Seen;
use super::identity::Identity;

/// A process that was ended, or left by itself once it was told to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its pid.
    pub pid: i32,
    /// Its name, as in `ps`.
    pub name: String,
}

/// What one look found.
pub(super) struct Look {
    /// What is to be ended.
    pub living: Vec<Seen>,
    /// Whether one died under the look: a child of it may have come up just after the list was
    /// read, so that finding nothing proves nothing.
    pub moved: bool,
}

/// SIGKILL takes effect at once, except on a process that hangs in the kernel. After this time
/// such a one is given up and named in the log.
const KILL_WITHIN: Duration = Duration::from_secs(5);

/// Ends what `look` finds. With a `grace` of zero nothing gets SIGTERM first.
///
/// What `whole` names is signalled as a whole before its members are, so that none forks out of the
/// way.
pub(super) async fn end(look: impl Fn() -> Look, whole: Whole<'_>, grace: Duration) -> Vec<Ended> {
    let mut ending = Ending { whole, signalled: HashSet::new(), ended: Vec::new() };
    if !grace.is_zero() {
        ending.gently(&look, Instant::now() + grace).await;
    }
    ending.hard(&look, Instant::now() + KILL_WITHIN).await;
    ending.ended
}

/// SIGKILL to what `look` finds, until two looks find nothing or `within` is over.
pub(super) async fn kill(look: impl Fn() -> Look, within: Duration) -> Vec<Ended> {
    let mut ending = Ending { whole: Whole::default(), signalled: HashSet::new(), ended: Vec::new() };
    ending.hard(&look, Instant::now() + within).await;
    ending.ended
}

/// SIGKILL to what `look` finds, again for what was forked meanwhile, without waiting for anything.
pub(super) fn kill_now(look: impl Fn() -> Look, whole: Whole<'_>) {
    /// Nothing can wait here. What forks faster than this meets its end at the next SIGCHLD.
    const LOOKS: usize = 8;
    let mut ending = Ending { whole, signalled: HashSet::new(), ended: Vec::new() };
    for _ in 0..LOOKS {
        let Look { living, moved } = look();
        if ending.signal(&living, Signal::KILL) == 0 && !moved {
            break;
        }
    }
}

/// A process group that is ours to signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group(pub(super) rustix::process::Pid);

/// What can be signalled in one call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Whole<'a> {
    /// A process group. The caller makes sure that its number is nobody else's (its leader is not
    /// collected yet).
    pub group: Option<Group>,
    /// A cgroup that holds nothing else.
    pub cgroup: Option<&'a Cgroup>,
}

struct Ending<'a> {
    whole: Whole<'a>,
    /// Who got the present signal.
    signalled: HashSet<Identity>,
    ended: Vec<Ended>,
}

impl Ending<'_> {
    async fn gently(&mut self, look: &impl Fn() -> Look, deadline: Instant) {
        loop {
            let Look { living: found, moved } = look();
            if found.is_empty() && !moved {
                break;
            }
            self.signal(&found, Signal::TERM);
            if !all_exited(&found, deadline).await {
                break;
            }
        }
        self.signalled.clear();
    }

    async fn hard(&mut self, look: &impl Fn() -> Look, deadline: Instant) {
        let mut empty_looks = 0;
        while empty_looks < 2 {
            let Look { living: found, moved } = look();
            if found.is_empty() && !moved {
                empty_looks += 1;
                continue;
            }
            empty_looks = 0;
            // While there are new ones nobody is waited for: that would give them time to fork.
            if self.signal(&found, Signal::KILL) > 0 {
                tokio::task::yield_now().await;
            } else {
                all_exited(&found, deadline.min(Instant::now() + Duration::from_millis(100))).await;
            }
            if Instant::now() >= deadline {
                let left: Vec<_> = found.iter().map(|seen| (seen.id.pid, seen.name.as_str())).collect();
                tracing::error!(?left, "processes survive SIGKILL; they are left");
                break;
            }
        }
    }

    /// Signals those of `found` that were not yet; tells how many these were.
    fn signal(&mut self, found: &[Seen], signal: Signal) -> usize {
        let new: Vec<&Seen> = found.iter().filter(|seen| self.signalled.insert(seen.id.clone())).collect();
        if signal == Signal::KILL
            && !new.is_empty()
            && let Some(cgroup) = self.whole.cgroup
        {
            // Best effort: before Linux 5.14 there is no such file, and each is signalled below.
            let _ = cgroup.kill();
        }
        let in_group = |seen: &Seen| self.whole.group.is_some_and(|group| group.0.as_raw_pid() == seen.group);
        if let Some(Group(group)) = self.whole.group.filter(|_| new.iter().any(|seen| in_group(seen))) {
            // Fails when the last one leaves just now, which is what is wanted.
            let _ = rustix::process::kill_process_group(group, signal);
            if signal == Signal::TERM {
                let _ = rustix::process::kill_process_group(group, Signal::CONT);
            }
        }
        for seen in &new {
            // Looked at again: it may have left the group between the look and the signal.
            if !in_group(seen) || seen.id.stat().is_some_and(|now| now.group != seen.group) {
                let _ = seen.id.signal(signal);
                if signal == Signal::TERM {
                    // A stopped process would hear of it only when somebody lets it go on.
                    let _ = seen.id.signal(Signal::CONT);
                }
            }
        }
        for seen in &new {
            if self.ended.iter().all(|ended| ended.pid != seen.id.pid) {
                self.ended.push(Ended { pid: seen.id.pid, name: seen.name.clone() });
            }
        }
        new.len()
    }
}

/// Waits for each to exit; whether all did before `deadline`.
async fn all_exited(found: &[Seen], deadline: Instant) -> bool {
    for seen in found {
        match timeout_at(deadline, seen.id.exited()).await {
            Ok(Ok(())) => {}
            // No descriptor is to be had, so there is no event to wait for.
            Ok(Err(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(_) => return false,
        }
    }
    true
}
