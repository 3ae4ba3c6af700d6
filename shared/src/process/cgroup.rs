//! Control groups (version 2), where a service manager delegated one: the kernel's own list of
//! what belongs together. Nothing leaves it by `setsid`, a cleared environment or a second fork.
//!
//! Paths are those of cgroups(7); what a kernel or a controller does not have reads as nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::Interest;
use tokio::time::{Instant, timeout_at};

use super::sys;

/// What is read of one of a cgroup's files; a list of pids may be long.
const MAX_BYTES: u64 = 1 << 20;

/// One cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// The cgroup that `pid` is in; none where version 2 is not mounted.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        let memberships = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        let Some(path) = membership(&memberships) else { return Ok(None) };
        let Some(mount) = mount_point(&fs::read_to_string("/proc/self/mounts")?) else { return Ok(None) };
        Ok(Some(Self { dir: mount.join(path.trim_start_matches('/')) }))
    }

    /// The cgroup of a path below the mount point.
    pub fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Its last component; under systemd the unit's name.
    pub fn name(&self) -> &str {
        self.dir.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// The one above it.
    pub fn parent(&self) -> Option<Self> {
        self.dir.parent().map(|dir| Self { dir: dir.to_owned() })
    }

    /// The name of the one right below `above` that this is, or is below.
    pub fn first_below(&self, above: &Self) -> Option<String> {
        let below = self.dir.strip_prefix(&above.dir).ok()?;
        Some(below.iter().next()?.to_str()?.to_owned())
    }

    /// One below it; it may not exist.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self { dir: self.dir.join(name) }
    }

    /// The names of those below it.
    pub fn children(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        dirs.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Whether it is there.
    pub fn exists(&self) -> bool {
        self.dir.is_dir()
    }

    /// Makes it.
    pub fn create(&self) -> io::Result<()> {
        fs::create_dir(&self.dir)
    }

    /// Removes it, with what is below it. Fails while a process is in one of them.
    pub fn remove(&self) -> io::Result<()> {
        for name in self.children() {
            self.child(&name).remove()?;
        }
        match fs::remove_dir(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Moves this process, with all its threads, into it.
    pub fn enter(&self) -> io::Result<()> {
        fs::write(self.dir.join("cgroup.procs"), "0")
    }

    /// SIGKILL to all that is in it and below it, also to what is forked meanwhile (Linux 5.14).
    pub fn kill(&self) -> io::Result<()> {
        fs::write(self.dir.join("cgroup.kill"), "1")
    }

    /// The processes in it and below it.
    pub fn processes(&self) -> Vec<i32> {
        let own = read(&self.dir.join("cgroup.procs")).unwrap_or_default();
        let mut pids: Vec<i32> = own.lines().filter_map(|line| line.parse().ok()).collect();
        for name in self.children() {
            pids.extend(self.child(&name).processes());
        }
        pids
    }

    /// Whether a process is in it or below it. One that is gone has none.
    pub fn is_populated(&self) -> bool {
        read(&self.dir.join("cgroup.events")).is_some_and(|events| field(&events, "populated") == Some(1))
    }

    /// Returns once nothing lives in it; `false` if something still does after `within`.
    pub async fn emptied(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let Ok(events) = fs::File::open(self.dir.join("cgroup.events")) else { return true };
        let Ok(events) = sys::watch(events.into(), Interest::PRIORITY) else { return !self.is_populated() };
        // The kernel tells of each change of this file.
        while self.is_populated() {
            match timeout_at(deadline, events.ready(Interest::PRIORITY)).await {
                Ok(Ok(mut ready)) => ready.clear_ready(),
                _ => return !self.is_populated(),
            }
        }
        true
    }

    /// The controllers that can limit and measure it, such as `memory`.
    pub fn controllers(&self) -> Vec<String> {
        let told = read(&self.dir.join("cgroup.controllers")).unwrap_or_default();
        told.split_whitespace().map(str::to_owned).collect()
    }

    /// What its processes have in memory, in bytes; none without the controller.
    pub fn memory_bytes(&self) -> Option<u64> {
        read(&self.dir.join("memory.current"))?.trim().parse().ok()
    }

    /// The processor time that its processes have used, in microseconds.
    pub fn cpu_usec(&self) -> Option<u64> {
        field(&read(&self.dir.join("cpu.stat"))?, "usage_usec")
    }

    /// How many of its processes the kernel has killed because memory ran out.
    pub fn oom_kills(&self) -> Option<u64> {
        field(&read(&self.dir.join("memory.events"))?, "oom_kill")
    }
}

fn read(path: &Path) -> Option<String> {
    let bytes = crate::fs::read_bounded(path, MAX_BYTES).ok()?;
    String::from_utf8(bytes).ok()
}

/// The path in version 2's hierarchy, of `/proc/<pid>/cgroup`.
fn membership(text: &str) -> Option<&str> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    // One that was removed while the process was in it (a zombie's).
    Some(path.strip_suffix(" (deleted)").unwrap_or(path))
}

fn mount_point(mounts: &str) -> Option<PathBuf> {
    let mut lines = mounts.lines().map(|line| line.split(' '));
    lines.find_map(|mut fields| {
        let (_, at, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(at))
    })
}

/// The number behind a name in a flat-keyed file.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_that_of_version_2_on_hybrid_machines_too() {
        let hybrid = "3:memory:/\n1:name=systemd:/user.slice\n0::/user.slice/a.scope\n";
        assert_eq!(membership(hybrid), Some("/user.slice/a.scope"));
        assert_eq!(membership("0::/gone (deleted)\n"), Some("/gone"));
        assert_eq!(membership("1:name=systemd:/\n"), None);
        let mounts = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(mount_point(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_point("tmpfs /tmp tmpfs rw 0 0\n"), None);
    }

    #[test]
    fn figures_are_read_by_their_whole_name() {
        let stat = "usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n";
        assert_eq!(field(stat, "usage_usec"), Some(1234));
        assert_eq!(field("oom 1\noom_kill 2\n", "oom"), Some(1));
        assert_eq!(field("oom_kill 2\n", "oom"), None);
    }

    #[test]
    fn what_a_kernel_does_not_have_reads_as_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let cgroup = Cgroup::at(dir.path().join("run-a"));
        assert_eq!((cgroup.memory_bytes(), cgroup.cpu_usec(), cgroup.oom_kills()), (None, None, None));
        assert!(!cgroup.is_populated() && cgroup.processes().is_empty() && !cgroup.exists());
        cgroup.remove().unwrap();
        cgroup.create().unwrap();
        fs::write(dir.path().join("run-a/memory.current"), "4096\n").unwrap();
        assert_eq!(cgroup.memory_bytes(), Some(4096));
        assert_eq!(cgroup.name(), "run-a");
        let above = Cgroup::at(dir.path().to_owned());
        assert_eq!(cgroup.child("deep").first_below(&above), Some("run-a".into()));
        assert_eq!((above.first_below(&cgroup), above.first_below(&above)), (None, None));
    }
}
