//! Kills a process at one exact moment of its life: at a given write to a given file, or at a given
//! message over a socket that may carry descriptors.
//!
//! A tracer (ptrace(2)) stops the process at every system call of its main thread, so nothing of
//! it runs between the write and its death. Other threads and children are left alone.

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::process::Signal;

use crate::processes::Process;

/// When to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The write is asked for and not done: everything that follows the one before was done.
    Before,
    /// The write is done, and nothing after it.
    After,
}

/// A process that is about to die.
#[derive(Debug)]
pub struct Killer(JoinHandle<usize>);

impl Killer {
    /// From now on counts the writes of `process` to the file called `name`, and kills it at
    /// number `nth` (the first is 1). Returns once the process is traced.
    pub fn at_write(process: &Process, name: &str, nth: usize, moment: Moment) -> Self {
        Self::at(process, Call::Write(name.to_owned()), nth, moment)
    }

    /// As [`at_write`](Self::at_write), for sendmsg(2): what supervisors say to workers and to each other.
    pub fn at_message(process: &Process, nth: usize, moment: Moment) -> Self {
        Self::at(process, Call::Message, nth, moment)
    }

    fn at(process: &Process, call: Call, nth: usize, moment: Moment) -> Self {
        let (traced, is_traced) = channel();
        let process = process.clone();
        // All requests of ptrace(2) have to come from one thread.
        let thread = std::thread::spawn(move || trace(&process, &call, nth, moment, &traced));
        is_traced.recv().expect("the process can be traced");
        Self(thread)
    }

    /// Waits for the end of the process, whoever ended it; how many writes were done.
    pub fn writes(self) -> usize {
        self.0.join().expect("the tracer did not panic")
    }
}

fn trace(process: &Process, call: &Call, nth: usize, moment: Moment, traced: &Sender<()>) -> usize {
    let pid = Pid::from_raw(process.pid);
    ptrace::seize(pid, ptrace::Options::PTRACE_O_TRACESYSGOOD).expect("ptrace(PTRACE_SEIZE)");
    ptrace::interrupt(pid).expect("ptrace(PTRACE_INTERRUPT)");
    let mut done = 0;
    let mut writing = false;
    let mut is_traced = false;
    loop {
        let mut deliver = None;
        match waitpid(pid, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => return done,
            Ok(WaitStatus::PtraceSyscall(_)) => {
                let is_entry = ptrace::syscall_info(pid).is_ok_and(|info| info.op == libc::PTRACE_SYSCALL_INFO_ENTRY);
                if is_entry {
                    writing = call.is_at(process.pid);
                } else if std::mem::take(&mut writing) {
                    done += 1;
                }
                let now = if is_entry { writing && moment == Moment::Before } else { moment == Moment::After };
                let number = if is_entry { done + 1 } else { done };
                if now && number == nth {
                    process.signal(Signal::KILL);
                    continue;
                }
            }
            Ok(WaitStatus::Stopped(_, signal)) => deliver = Some(signal),
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => panic!("waitpid: {error}"),
        }
        // It may have been killed while it was stopped; then the next wait tells.
        let _ = ptrace::syscall(pid, deliver);
        if !std::mem::replace(&mut is_traced, true) {
            traced.send(()).expect("somebody waits for it");
        }
    }
}

/// What is counted.
#[derive(Debug)]
enum Call {
    /// write(2) to a file of that name.
    Write(String),
    /// sendmsg(2)
    Message,
}

impl Call {
    /// Whether `pid`, stopped at the entry of a system call, is at one.
    fn is_at(&self, pid: i32) -> bool {
        match self {
            Self::Write(name) => is_write(pid, name),
            Self::Message => {
                let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
                call.split_whitespace().next().and_then(|number| number.parse().ok()) == Some(libc::SYS_sendmsg)
            }
        }
    }
}

/// Whether `pid`, stopped at the entry of a system call, is about to write to a file called `name`.
fn is_write(pid: i32, name: &str) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let mut fields = call.split_whitespace();
    let number = fields.next().and_then(|number| number.parse().ok());
    let file = fields.next().and_then(|hex| u32::from_str_radix(hex.trim_start_matches("0x"), 16).ok());
    let (Some(libc::SYS_write), Some(file)) = (number, file) else { return false };
    let path = std::fs::read_link(format!("/proc/{pid}/fd/{file}"));
    path.is_ok_and(|path| path.file_name() == Some(Path::new(name).as_os_str()))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// A shell that writes one line each to a file, and what it left of it.
    fn lines_after(nth: usize, moment: Moment) -> String {
        let dir = tempfile::tempdir().unwrap();
        let mut shell = Command::new("/bin/bash");
        let script = "read -r; echo x >other; exec >log; echo 1; echo 2; echo 3";
        let mut child = shell.args(["-c", script]).current_dir(dir.path()).stdin(Stdio::piped()).spawn().unwrap();
        let process = Process::of(child.id().cast_signed()).unwrap();
        let killer = Killer::at_write(&process, "log", nth, moment);
        drop(child.stdin.take());
        killer.writes();
        let _ = child.wait();
        std::fs::read_to_string(dir.path().join("log")).unwrap()
    }

    #[test]
    fn it_kills_before_a_write_or_after_it() {
        assert_eq!(lines_after(2, Moment::Before), "1\n");
        assert_eq!(lines_after(2, Moment::After), "1\n2\n");
        assert_eq!(lines_after(9, Moment::After), "1\n2\n3\n");
    }
}
