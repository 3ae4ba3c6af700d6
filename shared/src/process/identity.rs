//! Which process this is, whatever its pid is used for later.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::proc::{self, Stat};
use super::sys;

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
        let fd = match self.pidfd() {
            Ok(fd) => sys::watch(fd, tokio::io::Interest::READABLE)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        fd.readable().await.map(|_| ())
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
}
