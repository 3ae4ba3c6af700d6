//! Keeps a supervisor running where no service manager does.
//!
//! A few lines that cannot fail: no socket, no configuration, no thread. It is the reaper above
//! the supervisor, so that orphans of dead workers stay within reach when the supervisor itself
//! was killed, and it leaves when the supervisor leaves on purpose.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shared::layout::Layout;
use shared::process;

use crate::error::{EXIT_CANNOT_START, EXIT_HELD};
use crate::{log, notify};

/// The wait before the first restart; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A supervisor that lived so long had started well: the next wait is the first one again.
const STARTED_WELL: Duration = Duration::from_mins(1);

/// Runs until the supervisor leaves on purpose; the exit code is the supervisor's.
pub(crate) fn run(layout: &Layout, foreground: bool, on_demand: bool) -> ExitCode {
    match guard(layout, foreground, on_demand) {
        Ok(code) => ExitCode::from(code),
        Err(cause) => {
            notify::failed(&format!("cannot guard the supervisor: {cause}"));
            ExitCode::from(EXIT_CANNOT_START)
        }
    }
}

fn guard(layout: &Layout, foreground: bool, on_demand: bool) -> io::Result<u8> {
    if !foreground && setsid() == Err(Errno::EPERM) {
        // The leader of a process group cannot start a session; a child of it can.
        Command::new(std::env::current_exe()?).args(std::env::args_os().skip(1)).spawn()?;
        return Ok(0);
    }
    process::set_name("scvd-guard");
    process::become_subreaper()?;
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    // The supervisor inherits this and unblocks them once it has its handlers.
    signals.thread_block()?;
    let inbox = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;

    // Opened now: a supervisor that is started again is of the same version as this guard.
    let program = OpenOptions::new().read(true).open(std::env::current_exe()?)?;
    let strangers = children();
    let mut guard = Guard { layout, foreground, on_demand, program, inbox, strangers, asked_to_leave: false };
    if !foreground {
        guard.detach()?;
    }
    guard.keep_running()
}

struct Guard<'a> {
    layout: &'a Layout,
    foreground: bool,
    /// Whether the supervisor leaves when it is not needed.
    on_demand: bool,
    program: std::fs::File,
    inbox: SignalFd,
    /// Children of whatever executed us; not ours to end.
    strangers: Vec<i32>,
    asked_to_leave: bool,
}

impl Guard<'_> {
    /// Stdin and stderr leave the terminal; stdout is the first supervisor's, to say `ready` on.
    fn detach(&self) -> io::Result<()> {
        log::rotate(self.layout)?;
        dup2_stderr(log::open(self.layout)?)?;
        dup2_stdin(OpenOptions::new().read(true).open("/dev/null")?)?;
        std::env::set_current_dir("/")
    }

    fn keep_running(&mut self) -> io::Result<u8> {
        let mut wait = FIRST_WAIT;
        let mut first = true;
        loop {
            let started = Instant::now();
            let status = match self.start(first) {
                Ok(mut scvd) => self.until_it_exits(&mut scvd)?,
                // The machine is short of something; it may have it again later.
                Err(_) if !first => ExitStatus::from_raw(1 << 8),
                Err(error) => return Err(error),
            };
            first = false;
            match status.code().and_then(|code| u8::try_from(code).ok()) {
                Some(code @ (0 | EXIT_CANNOT_START | EXIT_HELD)) => return Ok(code),
                _ if self.asked_to_leave => return Ok(0),
                _ => {}
            }
            if started.elapsed() > STARTED_WELL {
                wait = FIRST_WAIT;
            }
            if self.sleep(wait)? {
                return Ok(0);
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    fn start(&self, first: bool) -> io::Result<Child> {
        use std::os::fd::AsRawFd as _;
        let family: Vec<String> = std::iter::once(std::process::id().cast_signed())
            .chain(self.strangers.iter().copied())
            .map(|p| p.to_string())
            .collect();
        let mut command = Command::new(format!("/proc/self/fd/{}", self.program.as_raw_fd()));
        command.arg0("scvd").arg("--scv-home").arg(self.layout.home()).arg("--guarded-by").arg(family.join(","));
        if self.on_demand {
            command.arg("--on-demand");
        }
        // Its own group: what a terminal signals reaches it once, through us.
        command.process_group(0).stdin(Stdio::null());
        if !first {
            command.stdout(Stdio::null());
        }
        let child = command.spawn()?;
        if first {
            // Whoever waits for `ready` must see the end of the pipe if this one dies.
            dup2_stdout(OpenOptions::new().write(true).open("/dev/null")?)?;
        }
        Ok(child)
    }

    fn until_it_exits(&mut self, scvd: &mut Child) -> io::Result<ExitStatus> {
        let pid = Pid::from_raw(scvd.id().cast_signed());
        loop {
            if let Some(status) = scvd.try_wait()? {
                return Ok(status);
            }
            reap_orphans(pid);
            let Some(signal) = self.next_signal(None)? else { continue };
            if signal != Signal::SIGCHLD {
                self.asked_to_leave |= signal != Signal::SIGHUP || self.foreground;
                // Fails when it has just exited, which the next round sees.
                let _ = nix::sys::signal::kill(pid, signal);
            }
        }
    }

    /// Whether a signal that means `leave` came before `wait` was over.
    fn sleep(&self, wait: Duration) -> io::Result<bool> {
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.next_signal(Some(left))? {
                None => return Ok(false),
                Some(Signal::SIGCHLD) => reap_orphans(Pid::from_raw(0)),
                Some(Signal::SIGHUP) if !self.foreground => {}
                Some(_) => return Ok(true),
            }
        }
    }

    fn next_signal(&self, within: Option<Duration>) -> io::Result<Option<Signal>> {
        let timeout = within.and_then(|within| Timespec::try_from(within).ok());
        let mut ready = [PollFd::new(&self.inbox, PollFlags::IN)];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let info = self.inbox.read_signal()?;
        Ok(info.and_then(|info| Signal::try_from(info.ssi_signo.cast_signed()).ok()))
    }
}

fn children() -> Vec<i32> {
    process::children(std::process::id().cast_signed())
}

/// Collects what came up to us and has exited; `scvd` is waited by its handle.
fn reap_orphans(scvd: Pid) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
    for pid in children().into_iter().map(Pid::from_raw).filter(|pid| *pid != scvd) {
        while matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))) {}
    }
}
