//! Keeps a supervisor running where no service manager does.
//!
//! A few lines that cannot fail: no socket, no configuration, no thread. It is the reaper above
//! the supervisor, so that orphans of dead workers stay within reach when the supervisor itself
//! was killed, and it leaves when the supervisor leaves on purpose. A supervisor that was replaced
//! leaves its successor to it: the child that holds the lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shared::layout::Layout;
use shared::process::{self, Identity};

use crate::error::{EXIT_CANNOT_START, EXIT_HELD};
use crate::{lock, log, notify};

/// The wait before the first restart; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A supervisor that takes over gives up before, or has written its pid into the lock's file.
const HEIR_WITHIN: Duration = Duration::from_secs(10);

/// No event tells when a file gets its content.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A supervisor that lived so long had started well: the next wait is the first one again.
const STARTED_WELL: Duration = Duration::from_mins(1);

/// How it guards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// In this terminal.
    pub(crate) foreground: bool,
    /// Whether the supervisor leaves when it is not needed.
    pub(crate) on_demand: bool,
}

/// What an earlier release of this guard, which executed us in its place, had found.
#[derive(Debug)]
pub(crate) struct Before {
    /// The supervisor, a child of ours.
    pub(crate) scvd: i32,
    /// Children that are not ours to end.
    pub(crate) strangers: Vec<i32>,
}

/// Runs until the supervisor leaves on purpose; the exit code is the supervisor's.
pub(crate) fn run(layout: &Layout, how: How, before: Option<Before>) -> ExitCode {
    match guard(layout, how, before) {
        Ok(code) => ExitCode::from(code),
        Err(cause) => {
            notify::failed(&format!("cannot guard the supervisor: {cause}"));
            ExitCode::from(EXIT_CANNOT_START)
        }
    }
}

fn guard(layout: &Layout, how: How, before: Option<Before>) -> io::Result<u8> {
    if !how.foreground && before.is_none() && setsid() == Err(Errno::EPERM) {
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
    let program = File::open(std::env::current_exe()?)?;
    let (scvd, strangers) = match before {
        Some(Before { scvd, strangers }) => (Some(scvd), strangers),
        None => (None, children()),
    };
    let mut guard = Guard { layout, how, program, inbox, strangers, asked: None };
    if !how.foreground && scvd.is_none() {
        guard.detach()?;
    }
    guard.keep_running(scvd)
}

struct Guard<'a> {
    layout: &'a Layout,
    how: How,
    program: File,
    inbox: SignalFd,
    /// Children of whatever executed us; not ours to end.
    strangers: Vec<i32>,
    /// The signal by which we were asked to leave.
    asked: Option<Signal>,
}

impl Guard<'_> {
    /// Stdin and stderr leave the terminal; stdout is the first supervisor's, to say `ready` on.
    fn detach(&self) -> io::Result<()> {
        log::rotate(self.layout)?;
        dup2_stderr(log::open(self.layout)?)?;
        dup2_stdin(OpenOptions::new().read(true).open("/dev/null")?)?;
        std::env::set_current_dir("/")
    }

    /// Watches `scvd`, if it runs already, and whatever comes after it.
    fn keep_running(&mut self, mut scvd: Option<i32>) -> io::Result<u8> {
        let mut wait = FIRST_WAIT;
        let mut first = scvd.is_none();
        loop {
            let started = Instant::now();
            let running = match scvd.take() {
                Some(pid) => Ok(pid),
                None => self.start(first),
            };
            let code = match running {
                Ok(pid) => self.until_it_exits(pid)?,
                // The machine is short of something; it may have it again later.
                Err(_) if !first => None,
                Err(error) => return Err(error),
            };
            // A supervisor that was replaced leaves its successor to us, however it ended itself.
            scvd = self.wait_for_successor()?;
            if let Some(pid) = scvd {
                if let Some(signal) = self.asked {
                    send(pid, signal);
                }
                self.become_release_of(pid);
                first = false;
                continue;
            }
            match code {
                Some(code @ (0 | EXIT_CANNOT_START | EXIT_HELD)) => return Ok(code),
                _ if self.asked.is_some() => return self.leave(),
                _ => {}
            }
            first = false;
            if started.elapsed() > STARTED_WELL {
                wait = FIRST_WAIT;
            }
            self.asked = self.sleep(wait)?;
            if self.asked.is_some() {
                return self.leave();
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// The successor of a supervisor that has just ended, once it is one. One that is on its way
    /// takes over, or ends as well.
    fn wait_for_successor(&mut self) -> io::Result<Option<i32>> {
        let until = Instant::now() + HEIR_WITHIN;
        loop {
            let successor = self.successor();
            if successor.is_some() || !self.has_heir() || Instant::now() > until {
                return Ok(successor);
            }
            match self.next_signal(Some(LOOK_EVERY))? {
                None => {}
                Some(Signal::SIGCHLD) => reap_orphans(Pid::from_raw(0)),
                Some(Signal::SIGHUP) if !self.how.foreground => {}
                Some(signal) => self.asked = Some(signal),
            }
        }
    }

    /// The supervisor that took over from the last one: a child of ours that holds the lock.
    fn successor(&self) -> Option<i32> {
        let holder = lock::last_holder(self.layout)?;
        let is_ours = children().contains(&holder) && !self.strangers.contains(&holder);
        (is_ours && Identity::of(holder).is_ok_and(|holder| holder.is_alive())).then_some(holder)
    }

    /// Whether a supervisor came up to us that may have the lock and has not written its pid yet.
    fn has_heir(&self) -> bool {
        let is_scvd = |pid: &i32| std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"scvd\n");
        children().iter().any(|pid| !self.strangers.contains(pid) && is_scvd(pid))
    }

    /// Becomes the program that the successor is of: same process, same children. Where that does
    /// not work we stay what we are, and start the new supervisor's program when it dies.
    fn become_release_of(&mut self, scvd: i32) {
        let Ok(program) = File::open(format!("/proc/{scvd}/exe")) else { return };
        self.program = program;
        let mut command = Command::new(format!("/proc/{scvd}/exe"));
        command.arg0("scvd").arg("--scv-home").arg(self.layout.home()).args(["--guard", "--watch"]);
        command.arg(scvd.to_string());
        if !self.strangers.is_empty() {
            command.arg("--strangers").arg(joined(&self.strangers));
        }
        command.args(self.how.foreground.then_some("--foreground")).args(self.how.on_demand.then_some("--on-demand"));
        if self.asked.is_none() {
            let _ = command.exec();
        }
    }

    /// Leaves on request while no supervisor runs. After SIGINT nothing goes on: a supervisor is
    /// started to end everything, and where that does not work the workers are told.
    fn leave(&mut self) -> io::Result<u8> {
        let ends_all = matches!(self.asked, Some(Signal::SIGINT | Signal::SIGHUP));
        if !ends_all {
            return Ok(0);
        }
        if let Ok(pid) = self.start(false) {
            // It is pending until there is a handler for it.
            send(pid, Signal::SIGINT);
            if self.until_it_exits(pid)? == Some(0) {
                return Ok(0);
            }
        }
        for pid in children().into_iter().filter(|pid| !self.strangers.contains(pid)) {
            // A worker takes it for `end`.
            send(pid, Signal::SIGTERM);
        }
        Ok(0)
    }

    fn start(&self, first: bool) -> io::Result<i32> {
        let mut family = vec![std::process::id().cast_signed()];
        family.extend(&self.strangers);
        let mut command = Command::new(format!("/proc/self/fd/{}", self.program.as_raw_fd()));
        command.arg0("scvd").arg("--scv-home").arg(self.layout.home()).arg("--guarded-by").arg(joined(&family));
        command.args(self.how.on_demand.then_some("--on-demand"));
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
        // It is waited by its pid, as a successor is, that no handle can be had of.
        Ok(child.id().cast_signed())
    }

    /// Its exit code; none if it was killed.
    fn until_it_exits(&mut self, scvd: i32) -> io::Result<Option<u8>> {
        let pid = Pid::from_raw(scvd);
        loop {
            match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG)? {
                WaitStatus::Exited(_, code) => return Ok(u8::try_from(code).ok()),
                WaitStatus::Signaled(..) => return Ok(None),
                _ => {}
            }
            reap_orphans(pid);
            let Some(signal) = self.next_signal(None)? else { continue };
            if signal != Signal::SIGCHLD {
                if signal != Signal::SIGHUP || self.how.foreground {
                    self.asked = Some(signal);
                }
                send(scvd, signal);
            }
        }
    }

    /// The signal that means `leave`, if one came before `wait` was over.
    fn sleep(&self, wait: Duration) -> io::Result<Option<Signal>> {
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.next_signal(Some(left))? {
                None => return Ok(None),
                Some(Signal::SIGCHLD) => reap_orphans(Pid::from_raw(0)),
                Some(Signal::SIGHUP) if !self.how.foreground => {}
                Some(signal) => return Ok(Some(signal)),
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

/// Fails for a process that has just exited, which the next look sees.
fn send(pid: i32, signal: Signal) {
    let _ = nix::sys::signal::kill(Pid::from_raw(pid), signal);
}

fn joined(pids: &[i32]) -> String {
    pids.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
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
