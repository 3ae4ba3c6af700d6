//! What tests of a session's life share: attaching, answering, finding its worker.

use serde_json::{Value, json};

use crate::env::TestEnv;
use crate::processes::Process;
use crate::wire::Wire;

/// A client that has attached to a session, with what it was told of the past.
pub struct Attached {
    /// The connection; what comes next is live.
    pub wire: Wire,
    /// `session.attached`.
    pub attached: Value,
    /// The replay.
    pub events: Vec<Value>,
    /// `queue.snapshot`.
    pub queue: Value,
}

impl Attached {
    /// Attaches to `session`, which has to work.
    #[track_caller]
    pub fn to(env: &TestEnv, session: &str, after_seq: u64) -> Self {
        Self::with(env, json!({"session_id": session, "after_seq": after_seq}))
    }

    /// As [`to`](Self::to), as often as the supervisor asks to try again: the worker that was to
    /// take the client may have been killed just now, or be slow.
    #[track_caller]
    pub fn at_last(env: &TestEnv, session: &str, after_seq: u64) -> Self {
        crate::eventually("a worker takes clients of the session", crate::DEADLINE, || {
            let mut wire = Wire::connect(env);
            wire.initialize(&["attach"]);
            let answer = wire.ask(json!({"type": "session.attach", "session_id": session, "after_seq": 0}));
            answer["code"] != "unavailable"
        });
        Self::to(env, session, after_seq)
    }

    /// As [`to`](Self::to), with fields of one's own.
    #[track_caller]
    pub fn with(env: &TestEnv, mut message: Value) -> Self {
        let mut wire = Wire::connect(env);
        wire.initialize(&["attach", "approvals"]);
        message["type"] = json!("session.attach");
        let attached = wire.ask(message);
        assert_eq!(attached["type"], "session.attached", "{}", wire.report());
        let mut events = wire.collect("the queue after the replay", |event| event["type"] == "queue.snapshot");
        let queue = events.pop().expect("the snapshot is the last");
        Self { wire, attached, events, queue }
    }
}

impl Wire {
    /// Answers `asked`, an `approval.requested`.
    pub fn resolve(&mut self, asked: &Value, approved: bool) {
        self.try_send(&json!({
            "type": "approval.resolve",
            "request_id": format!("resolve-{}", asked["approval_id"].as_str().unwrap_or_default()),
            "session_id": asked["session_id"],
            "approval_id": asked["approval_id"],
            "approved": approved,
        }));
    }

    /// Waits for a question and says yes; the question.
    #[track_caller]
    pub fn approve(&mut self) -> Value {
        let asked = self.until_type("approval.requested");
        self.resolve(&asked, true);
        asked
    }
}

impl TestEnv {
    /// What `daemon.control sessions` says of `session`.
    #[track_caller]
    pub fn session_entry(&self, session: &str) -> Option<Value> {
        let status = Wire::plain(self).control(&json!({"action": "sessions", "all": true}));
        let entries = status["sessions"]["entries"].as_array().cloned().unwrap_or_default();
        entries.into_iter().find(|entry| entry["id"] == json!(session))
    }

    /// The worker that runs `session` now.
    #[track_caller]
    pub fn worker_of(&self, session: &str) -> Process {
        let entry = self.session_entry(session).unwrap_or_else(|| panic!("no session {session}"));
        let pid = entry["worker_pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        pid.and_then(Process::of).unwrap_or_else(|| panic!("session {session} has no worker: {entry}"))
    }
}

/// The number of an event, if it has one.
pub fn seq(event: &Value) -> Option<u64> {
    event["seq"].as_u64()
}

/// An event as every client sees it: with the request id of the one that asked.
pub fn common(event: &Value) -> Value {
    let mut event = event.clone();
    if let Some(id) = event["request_id"].as_str().and_then(|id| id.strip_prefix("client:")) {
        event["request_id"] = json!(id.split_once(':').map_or(id, |(_, own)| own));
    }
    event
}
