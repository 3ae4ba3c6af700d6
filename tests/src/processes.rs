//! Looks at processes from outside: who is there, whose child, with which tags.
//!
//! The test process is a child subreaper, so whatever a test starts stays in the tree below it,
//! also when every parent in between died.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

/// Makes this process the one that orphans of its descendants come up to.
pub fn become_subreaper() {
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).expect("PR_SET_CHILD_SUBREAPER");
}

/// One process, as it was when it was looked at.
/// Two looks at one process are equal, whatever it did in between.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent.
    pub ppid: i32,
    /// Its process group.
    pub group: i32,
    /// Clock ticks after boot (proc(5), field 22): with the pid it names one process.
    pub start: u64,
    /// `R`, `S`, `Z`, …
    pub state: char,
    /// Its name (15 bytes).
    pub name: String,
    /// Its arguments.
    pub args: Vec<String>,
}

impl Process {
    /// The process with that pid, if there is one.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let (head, rest) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = rest.split_whitespace().collect();
        Some(Self {
            pid,
            ppid: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
            state: fields.first()?.chars().next()?,
            name,
            args: args
                .split(|byte| *byte == 0)
                .filter(|arg| !arg.is_empty())
                .map(|arg| String::from_utf8_lossy(arg).into_owned())
                .collect(),
        })
    }

    /// Every process of the machine.
    pub fn all() -> Vec<Self> {
        let entries = fs::read_dir("/proc").expect("/proc is readable");
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Self::of).collect()
    }

    /// Everything below `root`, itself not included, parents first.
    pub fn descendants(root: i32) -> Vec<Self> {
        let mut children: HashMap<i32, Vec<Self>> = HashMap::new();
        for process in Self::all() {
            children.entry(process.ppid).or_default().push(process);
        }
        let mut found = Vec::new();
        let mut next = vec![root];
        while let Some(parent) = next.pop() {
            for child in children.remove(&parent).unwrap_or_default() {
                next.push(child.pid);
                found.push(child);
            }
        }
        found
    }

    /// Whether the same process is still there; a zombie is not.
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_some_and(|now| now.start == self.start && now.state != 'Z')
    }

    /// The file name of its executable, which its arguments and its name need not tell.
    pub fn program(&self) -> Option<String> {
        let exe = fs::read_link(format!("/proc/{}/exe", self.pid)).ok()?;
        let name = exe.file_name()?.to_str()?;
        Some(name.strip_suffix(" (deleted)").unwrap_or(name).to_owned())
    }

    /// Its pid in the innermost namespace that it is in.
    pub fn inner_pid(&self) -> i64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        pids.split_whitespace().last().and_then(|pid| pid.parse().ok()).unwrap_or(-1)
    }

    /// Its path in the hierarchy of control groups, version 2.
    pub fn cgroup(&self) -> String {
        let text = fs::read_to_string(format!("/proc/{}/cgroup", self.pid)).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().to_owned()
    }

    /// Its working directory.
    pub fn cwd(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/cwd", self.pid)).ok()
    }

    /// A variable of the environment that it was executed with.
    pub fn var(&self, name: &str) -> Option<String> {
        let mut environ = Vec::new();
        fs::File::open(format!("/proc/{}/environ", self.pid)).ok()?.read_to_end(&mut environ).ok()?;
        environ.split(|byte| *byte == 0).find_map(|pair| {
            let pair = String::from_utf8_lossy(pair);
            let (key, value) = pair.split_once('=')?;
            (key == name).then(|| value.to_owned())
        })
    }

    /// The tag in its limit of realtime CPU time: (run, session); none where it is unlimited.
    pub fn rttime(&self) -> Option<(u64, u64)> {
        let limits = fs::read_to_string(format!("/proc/{}/limits", self.pid)).ok()?;
        let line = limits.lines().find(|line| line.starts_with("Max realtime timeout"))?;
        let mut values = line["Max realtime timeout".len()..].split_whitespace().map(str::parse);
        Some((values.next()?.ok()?, values.next()?.ok()?))
    }

    /// Its proportional set size in KiB.
    pub fn pss_kib(&self) -> Option<u64> {
        self.rollup("Pss:")
    }

    /// The memory that it alone has taken, in KiB: unlike its share of the program's pages, this
    /// does not grow when another process of the same program ends.
    pub fn anonymous_kib(&self) -> Option<u64> {
        self.rollup("Pss_Anon:")
    }

    fn rollup(&self, field: &str) -> Option<u64> {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid)).ok()?;
        rollup.lines().find_map(|line| line.strip_prefix(field))?.trim().strip_suffix(" kB")?.parse().ok()
    }

    /// Its open descriptors.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid)).map_or(0, Iterator::count)
    }

    fn pidfd(&self) -> Option<OwnedFd> {
        let fd = rustix::process::pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // After opening: from here on the descriptor means this very process or nothing.
        Self::of(self.pid).filter(|now| now.start == self.start)?;
        Some(fd)
    }

    /// Sends a signal, to this process and never to a later one of the same pid. Tells whether it was there.
    pub fn signal(&self, signal: Signal) -> bool {
        self.pidfd().is_some_and(|fd| rustix::process::pidfd_send_signal(&fd, signal).is_ok())
    }

    /// SIGKILL, and until it is gone.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
        assert!(self.gone_within(Duration::from_secs(5)), "still there 5 s after SIGKILL: {self:?}");
    }

    /// Waits for its end; tells whether it came in time.
    pub fn gone_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let Some(fd) = self.pidfd() else { return true };
        while self.is_alive() {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).expect("a time-out of seconds");
            let mut fds = [PollFd::new(&fd, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return !self.is_alive(),
                Ok(_) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("cannot wait for {self:?}: {error}"),
            }
        }
        true
    }
}

impl PartialEq for Process {
    fn eq(&self, other: &Self) -> bool {
        (self.pid, self.start) == (other.pid, other.start)
    }
}

impl Eq for Process {}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pid, ppid, group, state, name, args, .. } = self;
        write!(f, "{pid} (parent {ppid}, group {group}, {state}) {name}: {}", args.join(" "))
    }
}

/// Collects the zombies that came up to this process; `ours` are waited for by handle elsewhere.
pub fn reap_adopted(ours: &[i32]) {
    let own = std::process::id().cast_signed();
    for process in Process::all() {
        if process.ppid == own && process.state == 'Z' && !ours.contains(&process.pid) {
            let pid = Pid::from_raw(process.pid);
            let _ = rustix::process::waitpid(pid, WaitOptions::NOHANG);
        }
    }
}

/// Whether each test has a process of its own, as under `cargo nextest`: then all below it is the test's.
pub fn process_per_test() -> bool {
    std::env::var_os("NEXTEST_EXECUTION_MODE").is_some_and(|mode| mode == "process-per-test")
}

/// Those of `candidates` that belong to the instance below `root`, by environment, directory or arguments.
pub fn marked(candidates: Vec<Process>, root: &Path) -> Vec<Process> {
    let text = root.to_string_lossy().into_owned();
    let under = |value: Option<String>| value.is_some_and(|value| value.starts_with(&text));
    candidates
        .into_iter()
        .filter(|process| {
            under(process.var("SCV_HOME"))
                || under(process.var("HOME"))
                || under(process.var("TEST_ENV_ROOT"))
                || process.args.iter().any(|arg| arg.contains(&text))
                || process.cwd().is_some_and(|cwd| cwd.starts_with(root))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_found_below_its_parent_and_waited_for() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id().cast_signed();
        let own = std::process::id().cast_signed();
        let found = Process::descendants(own).into_iter().find(|p| p.pid == pid).unwrap();
        assert!(found.is_alive());
        assert!(!found.gone_within(Duration::ZERO));
        assert!(found.signal(Signal::KILL));
        assert!(found.gone_within(Duration::from_secs(5)));
        // A zombie until it is waited for, and that is not alive.
        assert!(!found.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn an_unlimited_process_has_no_tag() {
        assert_eq!(Process::of(std::process::id().cast_signed()).unwrap().rttime(), None);
    }
}
