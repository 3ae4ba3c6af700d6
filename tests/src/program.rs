//! One program that a test runs: its output is collected as it comes, its end is awaited bounded.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::DEADLINE;
use crate::processes::Process;

/// How a program ended and what it said.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// From its start to its end.
    pub took: Duration,
}

impl Output {
    /// Its exit code; panics where a signal ended it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by a signal: {self:?}"))
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Asserts the exit code and shows everything otherwise.
    #[track_caller]
    pub fn exits(&self, code: i32) -> &Self {
        assert_eq!(
            self.status.code(),
            Some(code),
            "{}\n--- stdout\n{}\n--- stderr\n{}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Standard output as JSON, one value a line.
    pub fn json_lines(&self) -> Vec<serde_json::Value> {
        let parse = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in the line {line:?} of {self:?}"))
        };
        self.stdout.lines().map(parse).collect()
    }
}

/// A program that runs. Dropped before its end it is killed.
#[derive(Debug)]
pub struct Program {
    what: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Collected,
    stderr: Collected,
    started: Instant,
    status: Option<ExitStatus>,
}

impl Program {
    /// Starts it; standard input is a pipe, see [`write`](Self::write) and [`close_stdin`](Self::close_stdin).
    pub fn start(command: &mut Command) -> Self {
        let what = format!("{command:?}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {what}: {error}"));
        let stdin = child.stdin.take();
        let stdout = Collected::from(child.stdout.take().expect("piped"));
        let stderr = Collected::from(child.stderr.take().expect("piped"));
        Self { what, child, stdin, stdout, stderr, started, status: None }
    }

    /// Its pid.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// It, among the processes; none after it was waited for.
    pub fn process(&self) -> Option<Process> {
        Process::of(self.pid())
    }

    /// Writes to its standard input.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        stdin.write_all(bytes)?;
        stdin.flush()
    }

    /// End of its standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Gives its standard input away.
    pub fn take_stdin(&mut self) -> ChildStdin {
        self.stdin.take().expect("standard input is open")
    }

    /// What it has written so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it has complained about so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until its standard output satisfies `enough`.
    #[track_caller]
    pub fn stdout_until(&self, what: &str, enough: impl Fn(&str) -> bool) -> String {
        self.stdout.until(enough).unwrap_or_else(|| panic!("waited for {what} on stdout{}", self.seen()))
    }

    /// Waits until its standard error satisfies `enough`.
    #[track_caller]
    pub fn stderr_until(&self, what: &str, enough: impl Fn(&str) -> bool) -> String {
        self.stderr.until(enough).unwrap_or_else(|| panic!("waited for {what} on stderr{}", self.seen()))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(process) = self.process() {
            process.signal(signal);
        }
    }

    /// Whether it ended.
    pub fn ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("own child");
        }
        self.status.is_some()
    }

    /// Waits for its end, and for the end of its output.
    #[track_caller]
    pub fn wait(self) -> Output {
        self.wait_within(DEADLINE)
    }

    /// Waits for its end, at most `limit`; standard input is closed first.
    #[track_caller]
    pub fn wait_within(mut self, limit: Duration) -> Output {
        self.stdin = None;
        let gone = self.process().is_none_or(|process| process.gone_within(limit));
        assert!(gone, "not ended after {limit:?}{}", self.seen());
        let status = match self.status {
            Some(status) => status,
            None => self.child.wait().expect("own child"),
        };
        self.status = Some(status);
        let took = self.started.elapsed();
        // Somebody it started may hold the pipes; that is for the test's last look to report.
        self.stdout.ended_within(Duration::from_secs(5));
        self.stderr.ended_within(Duration::from_secs(5));
        Output { status, stdout: self.stdout.text(), stderr: self.stderr.text(), took }
    }

    fn seen(&self) -> String {
        let mut text = format!(": {}", self.what);
        let _ = write!(text, "\n--- stdout\n{}\n--- stderr\n{}", self.stdout.text(), self.stderr.text());
        text
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.ended() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Bytes of a pipe, as they come.
#[derive(Clone, Debug)]
struct Collected(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    ended: bool,
}

impl Collected {
    fn from(mut pipe: impl Read + Send + 'static) -> Self {
        let shared = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let into = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut chunk = [0; 16 << 10];
            loop {
                let read = pipe.read(&mut chunk).unwrap_or(0);
                let mut state = into.0.lock().expect("not poisoned");
                state.bytes.extend_from_slice(&chunk[..read]);
                state.ended = read == 0;
                into.1.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
        Self(shared)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.0.lock().expect("not poisoned").bytes).into_owned()
    }

    fn until(&self, enough: impl Fn(&str) -> bool) -> Option<String> {
        let mut found = None;
        self.wait(DEADLINE, |state| {
            let text = String::from_utf8_lossy(&state.bytes);
            if enough(&text) {
                found = Some(text.into_owned());
            }
            found.is_some() || state.ended
        });
        found
    }

    fn ended_within(&self, limit: Duration) -> bool {
        self.wait(limit, |state| state.ended)
    }

    fn wait(&self, limit: Duration, mut done: impl FnMut(&State) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.0.0.lock().expect("not poisoned");
        loop {
            if done(&state) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.0.1.wait_timeout(state, left).expect("not poisoned").0;
        }
    }
}
