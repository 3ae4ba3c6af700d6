//! Which process this is, whatever its pid is used for later.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

use super::exit::Exit;
use super::proc::{self, Stat};
use super::sys;

/// From the end of a process to its parent's collecting it. A parent that is stopped never does.
const COLLECTED_WITHIN: Duration = Duration::from_millis(200);

/// One process, for good: a pid alone is somebody else's after a while.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Its pid.
    pub pid: i32,
    /// When it started: clock ticks after boot (proc(5), field 22 of stat).
    pub start: u64,
    /// The boot (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
}

impl Identity {
    /// The process that has `pid` now, dead or alive; `NotFound` if none has it.
    pub fn of(pid: i32) -> io::Result<Self> {
        Ok(Self::with_start(pid, Stat::of(pid)?.start))
    }

    /// This process.
    pub fn current() -> io::Result<Self> {
        Self::of(rustix::process::getpid().as_raw_pid())
    }

    pub(super) fn with_start(pid: i32, start: u64) -> Self {
        Self { pid, start, boot: boot_id().to_owned() }
    }

    /// Whether it still runs. A zombie does not.
    pub fn is_alive(&self) -> bool {
        self.stat().is_some_and(|stat| stat.is_alive())
    }

    pub(super) fn stat(&self) -> Option<Stat> {
        let stat = Stat::of(self.pid).ok()?;
        (stat.start == self.start && self.boot == boot_id()).then_some(stat)
    }

    /// A descriptor of the process. Fails with `NotFound` if it is gone or the pid is someone
    /// else's now. It becomes readable when the process exits.
    pub fn pidfd(&self) -> io::Result<OwnedFd> {
        let pid = Pid::from_raw(self.pid).ok_or(io::ErrorKind::NotFound)?;
        let fd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::SRCH) => return Err(io::ErrorKind::NotFound.into()),
            Err(error) => return Err(error.into()),
        };
        // Only now: what has the old start time behind a descriptor cannot be a later process.
        match self.stat() {
            Some(_) => Ok(fd),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Sends `signal`; never to another process that got the pid.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        pidfd_send_signal(self.pidfd()?, signal)?;
        Ok(())
    }

    /// Returns once the process has exited (at once if it is gone), collected or not.
    /// Works for processes that are no children. Cancel-safe.
    pub async fn exited(&self) -> io::Result<()> {
        let Some(fd) = self.watched()? else { return Ok(()) };
        fd.readable().await.map(|_| ())
    }

    /// As [`exited`](Self::exited), and how it ended: unknown if it was gone already, where only its
    /// parent is told (before Linux 6.15), and if that one does not collect it soon.
    pub async fn exit(&self) -> io::Result<Exit> {
        let Some(fd) = self.watched()? else { return Ok(Exit::default()) };
        let mut ready = fd.readable().await?;
        let told = async {
            loop {
                match sys::exit_status(fd.get_ref().as_fd()) {
                    Ok(Some(status)) => return Ok(Exit::from(status)),
                    Ok(None) => ready.clear_ready(),
                    Err(_) => return Ok(Exit::default()),
                }
                // The descriptor tells of both, the end and the collecting.
                ready = fd.readable().await?;
            }
        };
        timeout(COLLECTED_WITHIN, told).await.unwrap_or_else(|_| Ok(Exit::default()))
    }

    /// None if it is gone.
    fn watched(&self) -> io::Result<Option<AsyncFd<OwnedFd>>> {
        match self.pidfd() {
            Ok(fd) => sys::watch(fd, Interest::READABLE).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The id of this boot; empty where the kernel does not tell.
fn boot_id() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let id = proc::read("/proc/sys/kernel/random/boot_id", 64).unwrap_or_default();
        String::from_utf8_lossy(&id).trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn this_process_is_alive_and_itself() {
        let me = Identity::current().unwrap();
        assert!(me.is_alive());
        assert!(me.pidfd().is_ok());
        assert_eq!(me.boot.len(), 36);
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let me = Identity::current().unwrap();
        for other in [Identity { start: me.start + 1, ..me.clone() }, Identity { boot: "other".into(), ..me }] {
            assert!(!other.is_alive());
            assert_eq!(other.pidfd().unwrap_err().kind(), io::ErrorKind::NotFound);
            assert_eq!(other.signal(Signal::KILL).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn no_process_has_pid_zero_or_less() {
        for pid in [0, -1, i32::MAX] {
            assert_eq!(Identity::of(pid).unwrap_err().kind(), io::ErrorKind::NotFound, "{pid}");
        }
    }

    /// Whether this kernel tells others than the parent how a process ended.
    fn kernel_tells() -> bool {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let numbers: Vec<u32> = release.split(['.', '-']).map_while(|part| part.trim().parse().ok()).collect();
        numbers >= vec![6, 15]
    }

    /// A shell that has a child, which runs `script` once it is let go; the child.
    fn grandchild(script: &str) -> (std::process::Child, Identity) {
        use std::io::{BufRead as _, BufReader};
        let mut shell = std::process::Command::new("/bin/sh")
            .args(["-c", &format!("exec 3<&0; sh -c 'read go <&3; {script}' & echo $!; wait")])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let child = Identity::of(line.trim().parse().unwrap()).unwrap();
        (shell, child)
    }

    #[tokio::test]
    async fn how_the_child_of_another_ended_is_told_where_the_kernel_does() {
        let exits = [
            ("exit 7", Exit { code: Some(7), signal: None }),
            ("exit 0", Exit { code: Some(0), signal: None }),
            ("kill -ABRT $$", Exit { code: None, signal: Some(6) }),
        ];
        for (script, exit) in exits {
            let (mut shell, child) = grandchild(script);
            let told = child.exit();
            let let_go = async { shell.stdin.take().unwrap().write_all(b"\n").unwrap() };
            let (told, ()) = tokio::join!(told, let_go);
            assert_eq!(told.unwrap(), if kernel_tells() { exit } else { Exit::default() }, "{script}");
            shell.wait().unwrap();
            assert_eq!(child.exit().await.unwrap(), Exit::default(), "it is gone");
        }
    }

    #[tokio::test]
    async fn a_parent_that_does_not_collect_its_child_holds_nobody_up() {
        let (mut shell, child) = grandchild("exit 7");
        let parent = Identity::of(shell.id().cast_signed()).unwrap();
        parent.signal(Signal::STOP).unwrap();
        shell.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert_eq!(child.exit().await.unwrap(), Exit::default());
        assert!(!child.is_alive());
        parent.signal(Signal::CONT).unwrap();
        shell.wait().unwrap();
    }
}
