//! A user: one session after the other, prompts, second thoughts, and a connection that breaks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use uuid::Uuid;

use super::connection::Connection;
use super::plan::{Deed, View};
use super::{BACK_WITHIN, Shared, Stage};
use crate::faults::control;
use crate::script::{self, Step};
use crate::truth::Follow;

/// A frame may have 1 MiB (protocol).
const TOO_LONG: usize = (1 << 20) + 10;

/// A prompt whose end was not told.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub number: u64,
    message: Value,
}

/// A waiting prompt, as the user was told.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub queue_id: String,
    pub revision: u64,
    pub number: u64,
}

/// One user.
pub(super) struct User {
    pub(super) name: String,
    pub(super) stage: Stage,
    pub(super) random: fastrand::Rng,
    shared: Arc<Shared>,
    cwd: PathBuf,
    auto_approve: bool,
    pub(super) session: String,
    /// Whether the server said that it has the session.
    is_there: bool,
    pub(super) last_seq: u64,
    pub(super) sent: Vec<Sent>,
    prompts: usize,
}

/// What a user knows on one connection.
pub(super) struct Talk {
    pub connection: Connection,
    pub follow: Follow,
    /// Requests that sent a prompt: their id, the prompt, and whether it had been sent before.
    pub starts: Vec<(String, u64, bool)>,
    /// The turn of a prompt.
    pub turns: Vec<(String, u64)>,
    pub running: Option<String>,
    pub queue: Vec<Entry>,
    pub paused: bool,
}

impl User {
    pub(super) fn new(number: usize, stage: Stage, random: fastrand::Rng, shared: Arc<Shared>) -> Self {
        let cwd = stage.world.work().join(format!("user-{number}"));
        stage.world.make_dir(&cwd);
        Self {
            name: format!("user-{number}"),
            stage,
            random,
            shared,
            cwd,
            auto_approve: number.is_multiple_of(2),
            session: String::new(),
            is_there: false,
            last_seq: 0,
            sent: Vec::new(),
            prompts: 0,
        }
    }

    pub(super) fn live(&mut self) {
        self.take_a_session();
        let mut away = 0;
        while !self.shared.is_over() {
            // Whoever goes to sleep does not count as waiting.
            std::thread::sleep(Duration::from_millis(away));
            let began = Instant::now();
            match self.open() {
                Ok(mut talk) => {
                    self.stage.truth.state().recoveries.push(began.elapsed());
                    let (why, back_in) = self.converse(&mut talk);
                    self.last_seq = talk.follow.last;
                    self.say(&json!({"over": why}));
                    away = back_in;
                }
                Err(why) => {
                    if !self.shared.is_over() {
                        let text = format!("{} is cut off from {}: {why}", self.name, self.session);
                        self.stage.truth.violation(text);
                    }
                    return;
                }
            }
        }
    }

    pub(super) fn say(&self, what: &Value) {
        self.stage.truth.log(&self.name, what);
    }

    fn take_a_session(&mut self) {
        self.session = Uuid::now_v7().to_string();
        self.stage.truth.state().sessions.insert(self.session.clone());
        self.stage.truth.count("sessions");
        self.is_there = false;
        self.last_seq = 0;
        self.prompts = 0;
    }

    /// Removes the session for good and takes another.
    fn next_session(&mut self) {
        let began = Instant::now();
        let remove = json!({"action": "session_remove", "session_id": self.session});
        // One whose answer was lost is done as well.
        let dir = self.stage.world.state().join("sessions").join(&self.session);
        while control(&*self.stage.world, &remove).is_none() && dir.exists() {
            if began.elapsed() > BACK_WITHIN {
                self.stage.truth.violation(format!("session {} cannot be removed", self.session));
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.stage.truth.session_removed(&self.session);
        self.take_a_session();
    }

    /// Connects and joins the session, as often as it takes.
    fn open(&mut self) -> Result<Talk, String> {
        let deadline = Instant::now() + BACK_WITHIN;
        loop {
            let why = match self.try_open() {
                Ok(talk) => return Ok(talk),
                Err(why) => why,
            };
            if Instant::now() > deadline || self.shared.is_over() {
                return Err(why);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn try_open(&mut self) -> Result<Talk, String> {
        let mut connection = Connection::open(&*self.stage.world, &self.name, &["attach", "approvals"])?;
        // Either way leads into a session that is there; only one into one that is not.
        let attaches = self.is_there && self.random.bool();
        let after = if attaches { self.last_seq } else { 0 };
        connection.send(if attaches {
            json!({"type": "session.attach", "session_id": self.session, "after_seq": after,
                "on_disconnect": "keep", "auto_approve": self.auto_approve})
        } else {
            json!({"type": "session.start", "session_id": self.session, "cwd": self.cwd,
                "on_disconnect": "keep", "auto_approve": self.auto_approve})
        });
        let mut follow = Follow::after(after);
        loop {
            let event = connection.answer()?;
            follow.hear(&event, false);
            match event["type"].as_str() {
                Some("initialized") => {}
                Some("session.started" | "session.attached") => break,
                _ => return Err(event.to_string()),
            }
        }
        self.is_there = true;
        let mut talk = Talk {
            connection,
            follow,
            starts: Vec::new(),
            turns: Vec::new(),
            running: None,
            queue: Vec::new(),
            paused: false,
        };
        // Whether they were taken is not known; the session knows them by their id.
        for sent in self.sent.clone() {
            Self::send(&mut talk, &sent, true);
        }
        Ok(talk)
    }

    fn send(talk: &mut Talk, sent: &Sent, again: bool) {
        let request = talk.connection.send(sent.message.clone());
        talk.starts.push((request, sent.number, again));
    }

    /// Sends a prompt once more that was refused for now.
    pub(super) fn send_again(&self, talk: &mut Talk, number: u64) {
        if let Some(sent) = self.sent.iter().find(|sent| sent.number == number) {
            Self::send(talk, sent, true);
        }
    }

    /// Nothing more comes of a prompt.
    pub(super) fn settled(&mut self, number: u64) {
        self.sent.retain(|sent| sent.number != number);
        self.shared.busy(self.sent.len());
    }

    /// Talks until the connection ends: why it did, and after how many milliseconds it is opened again.
    fn converse(&mut self, talk: &mut Talk) -> (String, u64) {
        let mut due = Instant::now();
        loop {
            talk.connection.patience(due.saturating_duration_since(Instant::now()));
            match talk.connection.next() {
                Ok(Some(event)) => {
                    self.told(talk, &event);
                    if Instant::now() < due {
                        continue;
                    }
                }
                Ok(None) => {}
                Err(why) => return (why, 0),
            }
            if self.shared.is_over() {
                return ("over".into(), 0);
            }
            if let Some(end) = self.act(talk) {
                return end;
            }
            due = Instant::now() + Duration::from_millis(self.random.u64(5..80));
        }
    }

    /// Does something, or nothing; whether that ends the connection.
    fn act(&mut self, talk: &mut Talk) -> Option<(String, u64)> {
        let view = View {
            rests: self.shared.rests(),
            outstanding: self.sent.len(),
            prompts: self.prompts,
            running: talk.running.is_some(),
            queued: talk.queue.len(),
            paused: talk.paused,
        };
        let deed = Deed::next(&mut self.random, &view);
        if deed != Deed::Nothing {
            self.say(&json!({"does": format!("{deed:?}")}));
        }
        let session = self.session.clone();
        match deed {
            Deed::Prompt { steps, slowly, attaches } => self.prompt(talk, &steps, slowly, attaches),
            Deed::Cancel => {
                talk.connection
                    .send(json!({"type": "turn.cancel", "session_id": session, "turn_id": talk.running.clone()?}));
            }
            Deed::Pause(paused) => {
                talk.connection.send(json!({"type": "session.pause", "session_id": session, "paused": paused}));
            }
            Deed::Update(at, steps) => {
                let Entry { queue_id, revision, number } = talk.queue[at].clone();
                talk.connection.send(json!({"type": "queue.update", "session_id": session, "queue_id": queue_id,
                    "revision": revision, "prompt": script::text(number, &steps, false)}));
            }
            Deed::Move(at) => {
                let Entry { queue_id, revision, .. } = talk.queue[at].clone();
                let before = (at > 0).then(|| talk.queue[0].queue_id.clone());
                talk.connection.send(json!({"type": "queue.move", "session_id": session, "queue_id": queue_id,
                    "revision": revision, "before_queue_id": before}));
            }
            Deed::Remove(at) => {
                let Entry { queue_id, revision, number } = talk.queue[at].clone();
                if let Some(prompt) = self.stage.truth.state().prompts.get_mut(&number) {
                    prompt.withdrawing = true;
                }
                talk.connection.send(json!({"type": "queue.remove", "session_id": session, "queue_id": queue_id,
                    "revision": revision}));
            }
            Deed::Clear => drop(talk.connection.send(json!({"type": "session.clear", "session_id": session}))),
            Deed::Detach => drop(talk.connection.send(json!({"type": "session.detach", "session_id": session}))),
            Deed::Close => drop(talk.connection.send(json!({"type": "session.close", "session_id": session}))),
            Deed::Garbage => talk.connection.send_bytes(b"\xff\xfe no JSON\n"),
            Deed::TooLong => talk.connection.send_bytes(&[vec![b'x'; TOO_LONG], vec![b'\n']].concat()),
            Deed::HalfLine => {
                talk.connection.send_bytes(b"{\"type\":\"turn.st");
                return Some(("left in the middle of a line".into(), 0));
            }
            Deed::Leave(back_in) => return Some(("left".into(), back_in)),
            Deed::NewSession => {
                self.next_session();
                talk.follow.last = 0;
                return Some(("a new session".into(), 0));
            }
            Deed::Nothing => {}
        }
        None
    }

    fn prompt(&mut self, talk: &mut Talk, steps: &[Step], slowly: bool, attaches: bool) {
        let note = format!("{} prompt {}", self.session, self.prompts);
        let number = self.stage.truth.prompt(&self.session, attaches.then(|| note.clone()));
        let mut message = json!({"type": "turn.start", "session_id": self.session, "prompt_id": Uuid::now_v7(),
            "prompt": script::text(number, steps, slowly)});
        if attaches {
            let path = self.cwd.join(format!("attached-{number}"));
            std::fs::write(self.stage.world.outside(&path), &note).unwrap();
            message["attachments"] = json!([{"kind": "file", "path": path, "name": "note", "size": note.len()}]);
        }
        let sent = Sent { number, message };
        Self::send(talk, &sent, false);
        self.sent.push(sent);
        self.prompts += 1;
        self.shared.busy(self.sent.len());
    }
}
