//! A user: a client that sends prompts to its session, answers, cancels, leaves and comes back, and
//! notes every event that it is told.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use scv_tests::TestEnv;
use serde_json::{Value, json};
use shared::layout::Layout;
use shared::link::SocketAddress;

use crate::script::{self, Step};
use crate::truth::Truth;

/// Nobody is without a supervisor, or a session without an answer, for longer than this.
pub(crate) const BACK_WITHIN: Duration = Duration::from_secs(30);

/// Prompts that a user has under way at most.
const OUTSTANDING: usize = 3;

/// Prompts after which a user takes a new session.
const PROMPTS_A_SESSION: usize = 40;

/// One user, in a thread.
pub(crate) struct User {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the driver and the user's thread share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// No new prompts.
    rest: AtomicBool,
    outstanding: AtomicUsize,
}

impl User {
    /// Starts one.
    pub(crate) fn start(env: &TestEnv, number: usize, random: fastrand::Rng, truth: &Arc<Truth>) -> Self {
        let shared = Arc::new(Shared::default());
        let mut life = Life {
            number,
            random,
            layout: env.layout().clone(),
            cwd: env.work().join(format!("user-{number}")),
            truth: Arc::clone(truth),
            shared: Arc::clone(&shared),
            session: String::new(),
            last_seq: 0,
            sent: Vec::new(),
            prompts: 0,
        };
        std::fs::create_dir_all(&life.cwd).unwrap();
        let thread = std::thread::spawn(move || life.live());
        Self { shared, thread: Some(thread) }
    }

    /// Whether it sends new prompts.
    pub(crate) fn rests(&self, rests: bool) {
        self.shared.rest.store(rests, Ordering::SeqCst);
    }

    /// Prompts whose end it waits for.
    pub(crate) fn outstanding(&self) -> usize {
        self.shared.outstanding.load(Ordering::SeqCst)
    }

    /// Ends it.
    pub(crate) fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

struct Life {
    number: usize,
    random: fastrand::Rng,
    layout: Layout,
    cwd: std::path::PathBuf,
    truth: Arc<Truth>,
    shared: Arc<Shared>,
    session: String,
    last_seq: u64,
    /// Prompts whose end was not told, and their text.
    sent: Vec<(u64, String, uuid::Uuid)>,
    prompts: usize,
}

/// One connection.
struct Connection {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    line: Vec<u8>,
    /// Numbers up to this may jump.
    bracket: Option<u64>,
    requests: u64,
    /// Our requests that start a turn, by their id.
    starts: Vec<(String, u64)>,
    /// The turn of a prompt.
    turns: Vec<(String, u64)>,
    running: Option<String>,
}

impl Life {
    fn live(&mut self) {
        self.new_session();
        while !self.is_over() {
            let began = Instant::now();
            match self.open() {
                Ok(mut connection) => {
                    self.truth.state().recoveries.push(began.elapsed());
                    let ended = self.converse(&mut connection);
                    self.truth.log(format!("user {}: connection over: {ended}", self.number));
                }
                Err(why) => {
                    if !self.is_over() {
                        self.truth.violation(format!("user {} is cut off from {}: {why}", self.number, self.session));
                    }
                    return;
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.shared.stop.load(Ordering::SeqCst)
    }

    fn new_session(&mut self) {
        self.session = uuid::Uuid::now_v7().to_string();
        self.last_seq = 0;
        self.prompts = 0;
    }

    /// Connects and attaches, as often as it takes.
    fn open(&mut self) -> Result<Connection, String> {
        let deadline = Instant::now() + BACK_WITHIN;
        loop {
            let why = match self.try_open() {
                Ok(connection) => return Ok(connection),
                Err(why) => why,
            };
            if Instant::now() > deadline || self.is_over() {
                return Err(why);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn try_open(&mut self) -> Result<Connection, String> {
        let address = SocketAddress::of(&self.layout.socket()).map_err(|error| error.to_string())?;
        let stream = UnixStream::connect(address.path()).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        let mut connection = Connection {
            stream,
            lines,
            line: Vec::new(),
            bracket: Some(u64::MAX),
            requests: 0,
            starts: Vec::new(),
            turns: Vec::new(),
            running: None,
        };
        connection.send(json!({"type": "initialize", "protocol_version": 3,
            "client": {"name": format!("user-{}", self.number), "version": "1"},
            "features": ["attach", "approvals"]}));
        // The same for a session that is there and one that is not.
        connection.send(json!({"type": "session.start", "session_id": self.session, "cwd": self.cwd,
            "on_disconnect": "keep", "auto_approve": self.number.is_multiple_of(2)}));
        loop {
            let event = connection.next()?.ok_or("no answer in 10 s")?;
            match event["type"].as_str() {
                Some("initialized") => {}
                Some("session.started") => break,
                _ => return Err(event.to_string()),
            }
        }
        connection.stream.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
        // Whether they were taken is not known; the session knows them by their id.
        for (number, text, id) in self.sent.clone() {
            self.say(&mut connection, number, &text, id);
        }
        Ok(connection)
    }

    fn say(&mut self, connection: &mut Connection, number: u64, text: &str, id: uuid::Uuid) {
        let request = connection.send(json!({"type": "turn.start", "session_id": self.session, "prompt": text,
            "prompt_id": id}));
        connection.starts.push((request, number));
    }

    /// Talks until the connection ends; why it did.
    fn converse(&mut self, connection: &mut Connection) -> String {
        loop {
            match connection.next() {
                Ok(Some(event)) => self.told(connection, &event),
                Ok(None) => {}
                Err(why) => return why,
            }
            if self.is_over() {
                return "over".into();
            }
            if self.sent.is_empty() && self.prompts >= PROMPTS_A_SESSION {
                self.new_session();
                return "a new session".into();
            }
            if let Some(why) = self.act(connection) {
                return why;
            }
        }
    }

    /// Does something, or nothing.
    fn act(&mut self, connection: &mut Connection) -> Option<String> {
        let rests = self.shared.rest.load(Ordering::SeqCst);
        match self.random.u32(..400) {
            0..40 if !rests && self.sent.len() < OUTSTANDING && self.prompts < PROMPTS_A_SESSION => {
                let steps: Vec<Step> =
                    (0..self.random.usize(..4)).map(|_| Step::ALL[self.random.usize(..Step::ALL.len())]).collect();
                let number = self.truth.prompt(&self.session);
                let (text, id) = (script::text(number, &steps), uuid::Uuid::now_v7());
                self.sent.push((number, text.clone(), id));
                self.prompts += 1;
                self.shared.outstanding.store(self.sent.len(), Ordering::SeqCst);
                self.say(connection, number, &text, id);
            }
            40..43 => {
                let turn = connection.running.clone()?;
                connection.send(json!({"type": "turn.cancel", "session_id": self.session, "turn_id": turn}));
            }
            43..46 => return Some("left".into()),
            46 => {
                // Half a line, and gone.
                let _ = connection.stream.write_all(b"{\"type\":\"turn.st");
                return Some("left in the middle of a line".into());
            }
            47 => {
                let _ = connection.stream.write_all(b"\xff\xfe no JSON\n");
            }
            _ => {}
        }
        None
    }

    fn told(&mut self, connection: &mut Connection, event: &Value) {
        self.numbered(connection, event);
        let text = |field: &str| event[field].as_str().unwrap_or_default();
        let prompt = |connection: &Connection| {
            let by_request = connection.starts.iter().find(|(id, _)| id == text("request_id"));
            let by_turn = connection.turns.iter().find(|(id, _)| id == text("turn_id"));
            by_turn.or(by_request).map(|(_, number)| *number)
        };
        match text("type") {
            "turn.started" => {
                connection.running = Some(text("turn_id").to_owned());
                if let Some(number) = prompt(connection) {
                    connection.turns.push((text("turn_id").to_owned(), number));
                    self.acknowledged(number);
                }
            }
            "queue.enqueued" => {
                if let Some(number) = prompt(connection) {
                    self.acknowledged(number);
                    let entry = event["entry"]["queue_id"].as_str().unwrap_or_default().to_owned();
                    connection.turns.push((entry, number));
                }
            }
            "queue.dequeued" => {
                let known = connection.turns.iter().find(|(id, _)| id == text("queue_id")).map(|(_, number)| *number);
                connection.turns.extend(known.map(|number| (text("turn_id").to_owned(), number)));
            }
            "queue.snapshot" if event["paused"] == true => {
                connection.send(json!({"type": "session.pause", "session_id": self.session, "paused": false}));
            }
            "approval.requested" => {
                let approved = self.random.u8(..10) > 0;
                connection.send(json!({"type": "approval.resolve", "session_id": self.session,
                    "approval_id": event["approval_id"], "approved": approved}));
            }
            "tool.completed" if event["success"] == true => {
                let mut parts = text("call_id").trim_start_matches("call-").split('-');
                let call = (parts.next().and_then(|n| n.parse().ok()), parts.next().and_then(|n| n.parse().ok()));
                if let (Some(number), Some(step)) = call
                    && text("name") == "bash"
                {
                    self.truth.state().succeeded.insert((number, step));
                }
            }
            kind @ ("turn.completed" | "turn.cancelled" | "turn.failed") => {
                connection.running = None;
                if let Some(number) = prompt(connection) {
                    let how = if kind == "turn.failed" { format!("failed: {}", text("code")) } else { kind.to_owned() };
                    self.ended(number, text("turn_id"), &how);
                }
            }
            "error" => {
                let about =
                    connection.starts.iter().find(|(id, _)| id == text("request_id")).map(|(_, number)| *number);
                match about {
                    // The session may be leaving, or the disk may be full: asked again.
                    Some(number) if ["unavailable", "internal_error", "queue_limit"].contains(&text("code")) => {
                        self.truth.log(format!("user {}: prompt {number} refused: {event}", self.number));
                        let sent = self.sent.iter().find(|(sent, ..)| *sent == number).cloned();
                        if let Some((number, text, id)) = sent {
                            std::thread::sleep(Duration::from_millis(50));
                            self.say(connection, number, &text, id);
                        }
                    }
                    Some(number) => self.truth.violation(format!("prompt {number} was refused: {event}")),
                    None => {}
                }
            }
            _ => {}
        }
    }

    /// Numbers go up by one, but for what a bracket announced.
    fn numbered(&mut self, connection: &mut Connection, event: &Value) {
        if event["type"] == "session.attached" {
            connection.bracket = event["to_seq"].as_u64();
            return;
        }
        let Some(seq) = event["seq"].as_u64() else { return };
        // A prompt that was sent again is answered with the state of the first one: nothing new.
        if seq <= self.last_seq && connection.starts.iter().any(|(id, _)| event["request_id"] == id.as_str()) {
            return;
        }
        let replayed = connection.bracket.is_some_and(|to| seq <= to);
        if !replayed {
            let first = connection.bracket.take().is_some();
            if !first && seq != self.last_seq + 1 {
                self.truth.violation(format!(
                    "user {}: event {seq} of {} came after {}",
                    self.number, self.session, self.last_seq
                ));
            }
        }
        self.last_seq = seq;
    }

    fn acknowledged(&self, number: u64) {
        if let Some(prompt) = self.truth.state().prompts.get_mut(&number) {
            prompt.acknowledged = true;
        }
    }

    fn ended(&mut self, number: u64, turn: &str, how: &str) {
        {
            let mut state = self.truth.state();
            let prompt = state.prompts.get_mut(&number).unwrap();
            prompt.acknowledged = true;
            prompt.ends.insert(turn.to_owned(), how.to_owned());
        }
        self.sent.retain(|(sent, ..)| *sent != number);
        self.shared.outstanding.store(self.sent.len(), Ordering::SeqCst);
    }
}

impl Connection {
    /// Sends a request; its id. That the other side is gone is seen where it is read.
    fn send(&mut self, mut message: Value) -> String {
        self.requests += 1;
        let id = format!("q{}", self.requests);
        message["request_id"] = json!(id);
        let _ = self.stream.write_all(format!("{message}\n").as_bytes());
        id
    }

    /// The next event; none if nothing comes for the read time-out.
    fn next(&mut self) -> Result<Option<Value>, String> {
        match self.lines.read_until(b'\n', &mut self.line) {
            Ok(0) => Err("end".into()),
            Ok(_) if self.line.ends_with(b"\n") => {
                let event = serde_json::from_slice(&self.line).map_err(|error| format!("no JSON: {error}"));
                self.line.clear();
                event.map(Some)
            }
            // A worker that was killed in the middle of a line.
            Ok(_) => Err("end within a line".into()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}
