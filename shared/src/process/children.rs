//! Parents and children, as the kernel has them.
//!
//! With `/proc/<pid>/task/<tid>/children` the work is that of the family looked at. A kernel
//! without that file (`CONFIG_PROC_CHILDREN`) costs one scan of /proc a look.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use super::identity::Identity;
use super::proc::{self, Stat};

/// A tree of more processes than this is looked at in parts: what is found is ended, then the rest.
const LOOK: usize = 1 << 14;

/// One process that was seen alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub id: Identity,
    pub name: String,
    pub group: i32,
}

impl Seen {
    /// `None` if it is gone or a zombie.
    pub(super) fn of(pid: i32) -> Option<Self> {
        let stat = Stat::of(pid).ok()?;
        stat.is_alive().then(|| Self { id: Identity::with_start(pid, stat.start), name: stat.name, group: stat.group })
    }
}

/// The direct children of `pid`, zombies included; empty if it is gone.
pub fn children(pid: i32) -> Vec<i32> {
    Kin::look().children(pid)
}

/// `pid` and all that descends from it, parents first; zombies are left out.
pub fn tree(pid: i32) -> Vec<Identity> {
    seen_tree(&[pid]).into_iter().map(|seen| seen.id).collect()
}

/// How many processes [`tree`] has.
pub fn count(pid: i32) -> usize {
    seen_tree(&[pid]).len()
}

/// The living of the trees below (and with) `roots`, parents first.
pub(super) fn seen_tree(roots: &[i32]) -> Vec<Seen> {
    Kin::look().tree(roots)
}

/// One look at who is whose child.
enum Kin {
    /// Each list is read when it is asked for.
    Files,
    /// Everything was read at once.
    Scan(HashMap<i32, Vec<i32>>),
}

impl Kin {
    fn look() -> Self {
        static FILES: OnceLock<bool> = OnceLock::new();
        let files = FILES.get_or_init(|| {
            let me = rustix::process::getpid().as_raw_pid();
            std::path::Path::new(&format!("/proc/{me}/task/{me}/children")).exists()
        });
        if *files { Self::Files } else { Self::scan() }
    }

    fn scan() -> Self {
        let mut by_parent: HashMap<i32, Vec<i32>> = HashMap::new();
        for pid in proc::numbers("/proc").unwrap_or_default() {
            if let Ok(stat) = Stat::of(pid) {
                by_parent.entry(stat.parent).or_default().push(pid);
            }
        }
        Self::Scan(by_parent)
    }

    fn children(&self, pid: i32) -> Vec<i32> {
        match self {
            // A child belongs to the thread that forked it, so each thread has a list.
            Self::Files => proc::numbers(&format!("/proc/{pid}/task"))
                .unwrap_or_default()
                .into_iter()
                .flat_map(|thread| parse(&format!("/proc/{pid}/task/{thread}/children")))
                .collect(),
            Self::Scan(by_parent) => by_parent.get(&pid).cloned().unwrap_or_default(),
        }
    }

    fn tree(&self, roots: &[i32]) -> Vec<Seen> {
        let mut found = Vec::new();
        let mut known = HashSet::new();
        let mut next = roots.to_vec();
        // Breadth first. A zombie's children have moved up already, so it has no tree.
        while !next.is_empty() && found.len() < LOOK {
            let generation: Vec<Seen> = next.drain(..).filter(|pid| known.insert(*pid)).filter_map(Seen::of).collect();
            next.extend(generation.iter().flat_map(|seen| self.children(seen.id.pid)));
            found.extend(generation);
        }
        found
    }
}

fn parse(path: &str) -> Vec<i32> {
    let list = proc::read(path, LOOK * 8).unwrap_or_default();
    String::from_utf8_lossy(&list).split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn both_ways_of_looking_find_the_same_family() {
        let family = super::super::Family::new().unwrap();
        let mut shell = tokio::process::Command::new("/bin/sh");
        shell.args(["-c", "sleep 60 & sleep 60 & echo; wait"]).stdout(std::process::Stdio::piped());
        let mut shell = family.spawn(&mut shell).unwrap();
        shell.stdout.take().unwrap().read_u8().await.unwrap();
        let pid = shell.id().unwrap().cast_signed();

        // Their names differ from look to look: a child has the shell's until it has executed `sleep`.
        let members = |kin: Kin| {
            let mut pids: Vec<i32> = kin.tree(&[pid]).iter().map(|seen| seen.id.pid).collect();
            assert_eq!((pids.len(), pids[0]), (3, pid));
            pids.sort_unstable();
            pids
        };
        assert_eq!(members(Kin::Files), members(Kin::scan()));
        assert_eq!(count(pid), 3);

        for member in tree(pid).iter().rev() {
            member.signal(super::super::Signal::KILL).unwrap();
            member.exited().await.unwrap();
        }
        shell.wait().await.unwrap();
        family.forget(pid);
        assert_eq!(count(pid), 0);
    }

    #[test]
    fn a_process_that_is_gone_has_no_tree() {
        assert_eq!(children(i32::MAX), Vec::<i32>::new());
        assert_eq!(tree(i32::MAX), Vec::new());
    }
}
