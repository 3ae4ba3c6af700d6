//! A raw client of the protocol: sends JSON values, or any bytes, and awaits events.
//!
//! It knows the shape of a line and nothing of what lines mean, so that it can say what a real
//! client never would. A wait that fails shows all that was seen.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::DEADLINE;
use crate::env::TestEnv;
use crate::processes::Process;

/// One connection.
pub struct Wire {
    sink: Option<Box<dyn Write + Send>>,
    lines: Receiver<Line>,
    /// All that came, for the report.
    seen: Vec<String>,
    next_request: u32,
    /// Whether every frame has to be one that a strict client of version 3 reads.
    strict: bool,
    transport: Transport,
}

enum Transport {
    Socket(UnixStream),
    Child(std::process::Child),
}

enum Line {
    Text(Vec<u8>),
    End,
}

impl Wire {
    /// Connects to the supervisor's socket.
    #[track_caller]
    pub fn connect(env: &TestEnv) -> Self {
        Self::on(env.connect().unwrap_or_else(|error| panic!("cannot connect: {error}")))
    }

    /// Talks on a connection that is there.
    pub fn on(stream: UnixStream) -> Self {
        let sink = stream.try_clone().expect("a second descriptor");
        let source = stream.try_clone().expect("a third descriptor");
        Self::over(Box::new(sink), source, Transport::Socket(stream))
    }

    /// Connects and shakes hands without features, as a plain client of version 3.
    #[track_caller]
    pub fn plain(env: &TestEnv) -> Self {
        let mut wire = Self::connect(env);
        wire.initialize(&[]);
        wire
    }

    /// Starts `scv server --stdio`.
    pub fn server(env: &TestEnv) -> Self {
        let mut command = env.command("scv");
        command.args(["server", "--stdio"]);
        Self::child(command)
    }

    /// Starts `scv-worker --stdio`, without its guard.
    pub fn worker(env: &TestEnv) -> Self {
        let mut command = env.command("scv-worker");
        command.arg("--scv-home").arg(env.layout().home()).arg("--stdio");
        Self::child(command)
    }

    /// Starts any server on standard streams.
    pub fn child(mut command: std::process::Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let sink = child.stdin.take().expect("piped");
        let source = child.stdout.take().expect("piped");
        Self::over(Box::new(sink), source, Transport::Child(child))
    }

    fn over(sink: Box<dyn Write + Send>, source: impl Read + Send + 'static, transport: Transport) -> Self {
        let (send, lines) = channel();
        std::thread::spawn(move || {
            let mut source = BufReader::new(source);
            loop {
                let mut line = Vec::new();
                let read = source.read_until(b'\n', &mut line).unwrap_or(0);
                let end = read == 0;
                if send.send(if end { Line::End } else { Line::Text(line) }).is_err() || end {
                    return;
                }
            }
        });
        Self { sink: Some(sink), lines, seen: Vec::new(), next_request: 1, strict: false, transport }
    }

    /// The process of a child transport.
    pub fn process(&self) -> Option<Process> {
        match &self.transport {
            Transport::Socket(_) => None,
            Transport::Child(child) => Process::of(child.id().cast_signed()),
        }
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let sink = self.sink.as_mut().expect("the write side is open");
        sink.write_all(bytes)?;
        sink.flush()
    }

    /// Sends one message as a line.
    #[track_caller]
    pub fn send(&mut self, message: &Value) {
        self.seen.push(format!("> {}", cut(&message.to_string())));
        let sent = self.send_bytes(format!("{message}\n").as_bytes());
        sent.unwrap_or_else(|error| panic!("cannot send {message}: {error}{}", self.report()));
    }

    /// Sends one message to somebody who may be gone.
    pub fn try_send(&mut self, message: &Value) {
        self.seen.push(format!("> {}", cut(&message.to_string())));
        // Whether it arrived is what the test looks at.
        let _ = self.send_bytes(format!("{message}\n").as_bytes());
    }

    /// Sends a message under a fresh `request_id`, which is returned.
    #[track_caller]
    pub fn request(&mut self, mut message: Value) -> String {
        let id = format!("r{}", self.next_request);
        self.next_request += 1;
        message["request_id"] = json!(id);
        self.send(&message);
        id
    }

    /// Sends a message and returns the first event that answers it, whatever it is.
    #[track_caller]
    pub fn ask(&mut self, message: Value) -> Value {
        let id = self.request(message);
        self.until(&format!("the answer to {id}"), |event| event["request_id"] == json!(id))
    }

    /// Half-closes: the server sees an EOF and may still send.
    pub fn close_write(&mut self) {
        self.sink = None;
        if let Transport::Socket(stream) = &self.transport {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    /// The next event. Panics at the end of the connection.
    #[track_caller]
    pub fn event(&mut self) -> Value {
        match self.next_line(DEADLINE) {
            Ok(Some(line)) => self.parse(&line),
            Ok(None) => panic!("the connection ended{}", self.report()),
            Err(Quiet) => panic!("nothing came{}", self.report()),
        }
    }

    /// The next event; none once the connection has ended.
    #[track_caller]
    pub fn try_event(&mut self) -> Option<Value> {
        match self.next_line(DEADLINE) {
            Ok(line) => line.map(|line| self.parse(&line)),
            Err(Quiet) => panic!("nothing came, and the connection did not end{}", self.report()),
        }
    }

    /// Waits for an event; what comes before it is only kept for the report.
    #[track_caller]
    pub fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.collect(what, wanted).pop().expect("the wanted one is the last")
    }

    /// Waits for an event of a type.
    #[track_caller]
    pub fn until_type(&mut self, kind: &str) -> Value {
        self.until(kind, |event| event["type"] == json!(kind))
    }

    /// Waits for an event and returns everything up to it.
    #[track_caller]
    pub fn collect(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let deadline = Instant::now() + DEADLINE;
        let mut events = Vec::new();
        loop {
            match self.next_line(deadline.saturating_duration_since(Instant::now())) {
                Ok(Some(line)) => {
                    let event = self.parse(&line);
                    let done = wanted(&event);
                    events.push(event);
                    if done {
                        return events;
                    }
                }
                Ok(None) => panic!("waited for {what} and the connection ended{}", self.report()),
                Err(Quiet) => panic!("waited for {what}{}", self.report()),
            }
        }
    }

    /// Everything up to the turn's last event.
    #[track_caller]
    pub fn turn(&mut self) -> Vec<Value> {
        self.collect("the end of the turn", is_terminal)
    }

    /// Waits for the end of the connection and returns what came before it.
    #[track_caller]
    pub fn until_closed(&mut self) -> Vec<Value> {
        let deadline = Instant::now() + DEADLINE;
        let mut events = Vec::new();
        loop {
            match self.next_line(deadline.saturating_duration_since(Instant::now())) {
                Ok(Some(line)) => events.push(self.parse(&line)),
                Ok(None) => return events,
                Err(Quiet) => panic!("waited for the end of the connection{}", self.report()),
            }
        }
    }

    /// Whether nothing comes for `time`. For what must not happen; waits the whole time.
    pub fn quiet_for(&mut self, time: Duration) -> bool {
        self.next_line(time).is_err()
    }

    /// Shakes hands.
    #[track_caller]
    pub fn initialize(&mut self, features: &[&str]) -> Value {
        // Who asks for nothing new gets nothing new.
        self.strict = features.is_empty();
        let mut message = json!({
            "type": "initialize",
            "protocol_version": 3,
            "client": {"name": "scv-tests", "version": "1"},
        });
        if !features.is_empty() {
            message["features"] = json!(features);
        }
        let answer = self.ask(message);
        assert_eq!(answer["type"], "initialized", "{}", self.report());
        answer
    }

    /// Starts a session in the instance's workspace; `more` adds fields. Returns its id.
    #[track_caller]
    pub fn session(&mut self, env: &TestEnv, more: &Value) -> String {
        let mut message = json!({"type": "session.start", "cwd": env.work()});
        for (key, value) in more.as_object().into_iter().flatten() {
            message[key] = value.clone();
        }
        let started = self.ask(message);
        assert_eq!(started["type"], "session.started", "{}", self.report());
        self.until_type("queue.snapshot");
        started["session_id"].as_str().expect("an id").to_owned()
    }

    /// Sends a prompt and returns its `request_id`.
    #[track_caller]
    pub fn prompt(&mut self, session: &str, prompt: &str) -> String {
        self.request(json!({"type": "turn.start", "session_id": session, "prompt": prompt}))
    }

    /// A request to the supervisor; its `status`.
    #[track_caller]
    pub fn control(&mut self, command: &Value) -> Value {
        let answer = self.ask(json!({"type": "daemon.control", "command": command}));
        assert_eq!(answer["type"], "daemon.status", "{}", self.report());
        answer["status"].clone()
    }

    fn next_line(&mut self, limit: Duration) -> Result<Option<Vec<u8>>, Quiet> {
        match self.lines.recv_timeout(limit) {
            Ok(Line::Text(line)) => {
                self.seen.push(format!("< {}", cut(String::from_utf8_lossy(&line).trim_end())));
                Ok(Some(line))
            }
            Ok(Line::End) | Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(Quiet),
        }
    }

    #[track_caller]
    fn parse(&self, line: &[u8]) -> Value {
        let event: Value =
            serde_json::from_slice(line).unwrap_or_else(|error| panic!("no JSON line: {error}{}", self.report()));
        assert!(event["type"].is_string(), "a frame without a type{}", self.report());
        if let Some(why) = crate::strict::refuses(&event).filter(|_| self.strict) {
            panic!("a strict client of version 3 does not read this: {why}{}", self.report());
        }
        event
    }

    /// All that was said on this connection, for a failed assertion.
    pub fn report(&self) -> String {
        format!("\n--- said so far\n{}\n---", self.seen.join("\n"))
    }
}

/// Nothing came in time.
struct Quiet;

/// Whether an event is the last one of its turn.
pub fn is_terminal(event: &Value) -> bool {
    matches!(event["type"].as_str(), Some("turn.completed" | "turn.cancelled" | "turn.failed"))
}

fn cut(text: &str) -> String {
    const SHOWN: usize = 600;
    if text.len() <= SHOWN {
        return text.to_owned();
    }
    let end = (0..=SHOWN).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}… ({} bytes)", &text[..end], text.len())
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.close_write();
        match &mut self.transport {
            Transport::Socket(stream) => drop(stream.shutdown(Shutdown::Both)),
            Transport::Child(child) => {
                // EOF is its sign to leave; whether it does is for the test's last look, which wants it waited for.
                let process = Process::of(child.id().cast_signed());
                if process.is_some_and(|process| !process.gone_within(Duration::from_secs(10))) {
                    let _ = child.kill();
                }
                let _ = child.wait();
            }
        }
    }
}
