//! A whole session in one value: an instance with its supervisor, a fake model and a client.

use serde_json::{Value, json};

use crate::env::TestEnv;
use crate::fakes::model::{Model, Reply, Request};
use crate::wire::{Wire, is_terminal};

/// One client in one session. Dropping it stops everything, the client first.
pub struct Talk {
    /// The client, in the session.
    pub wire: Wire,
    /// The session.
    pub session: String,
    /// What answers.
    pub model: Model,
    /// Where it runs.
    pub env: TestEnv,
}

impl Talk {
    /// A session of a plain client of version 3.
    #[track_caller]
    pub fn start() -> Self {
        Self::configured("")
    }

    /// As [`start`](Self::start), with `more` configuration; see [`TestEnv::configure`].
    #[track_caller]
    pub fn configured(more: &str) -> Self {
        let model = Model::start_blocking();
        let env = TestEnv::new();
        env.configure(&model.url(), more);
        Self::of(env, model, &[], &json!({}))
    }

    /// As [`configured`](Self::configured), with everything approved.
    #[track_caller]
    pub fn approving(more: &str) -> Self {
        let model = Model::start_blocking();
        let env = TestEnv::new();
        env.configure(&model.url(), more);
        Self::of(env, model, &[], &json!({"auto_approve": true}))
    }

    /// A client with `features` in a session with `more` fields of `session.start`.
    #[track_caller]
    pub fn of(env: TestEnv, model: Model, features: &[&str], more: &Value) -> Self {
        env.start();
        let mut wire = Wire::connect(&env);
        wire.initialize(features);
        let session = wire.session(&env, more);
        Self { wire, session, model, env }
    }

    /// Another client of the instance in a session of its own.
    #[track_caller]
    pub fn neighbour(&self) -> (Wire, String) {
        let mut wire = Wire::plain(&self.env);
        let session = wire.session(&self.env, &json!({}));
        (wire, session)
    }

    /// Sends a prompt and gives everything up to the turn's end; approvals are left open.
    #[track_caller]
    pub fn turn(&mut self, prompt: &str) -> Vec<Value> {
        self.wire.prompt(&self.session, prompt);
        self.wire.turn()
    }

    /// As [`turn`](Self::turn); every approval is answered with `approved`.
    #[track_caller]
    pub fn turn_answering(&mut self, prompt: &str, approved: bool) -> Vec<Value> {
        self.wire.prompt(&self.session, prompt);
        let mut events = Vec::new();
        loop {
            events.extend(self.wire.collect("an approval or the end of the turn", |event| {
                is_terminal(event) || event["type"] == "approval.requested"
            }));
            let last = events.last().expect("the wanted one");
            if is_terminal(last) {
                return events;
            }
            self.wire.resolve(last, approved);
        }
    }

    /// One call of `name` in a turn of its own, approved where somebody has to; its `tool.completed`.
    #[track_caller]
    pub fn call(&mut self, name: &str, arguments: &Value) -> Value {
        self.model.push(Reply::new().call(name, arguments));
        self.model.push(Reply::text("done"));
        let events = self.turn_answering("call", true);
        let mut results = of_type(&events, "tool.completed");
        assert_eq!(results.len(), 1, "one result{}", self.wire.report());
        results.remove(0)
    }

    /// As [`call`](Self::call), and the approval that was asked for, which is given.
    #[track_caller]
    pub fn call_asked(&mut self, name: &str, arguments: &Value) -> (Option<Value>, Value) {
        self.model.push(Reply::new().call(name, arguments));
        self.model.push(Reply::text("done"));
        let events = self.turn_answering("call", true);
        let asked = of_type(&events, "approval.requested").pop();
        (asked, of_type(&events, "tool.completed").pop().expect("a result"))
    }

    /// The last request that the model got.
    #[track_caller]
    pub fn last_request(&self) -> Request {
        crate::wait(self.model.requests()).pop().expect("a request")
    }
}

/// The events of one type.
pub fn of_type(events: &[Value], kind: &str) -> Vec<Value> {
    events.iter().filter(|event| event["type"] == kind).cloned().collect()
}

/// The text of all deltas.
pub fn streamed(events: &[Value]) -> String {
    let deltas = events.iter().filter(|event| event["type"] == "assistant.delta");
    deltas.filter_map(|event| event["content"].as_str()).collect()
}

/// The code and the sentence of the `turn.failed` that ends `events`.
#[track_caller]
pub fn failure(events: &[Value]) -> (String, String) {
    let last = events.last().expect("a terminal event");
    assert_eq!(last["type"], "turn.failed", "{events:#?}");
    let text = |name: &str| last[name].as_str().expect("a string").to_owned();
    (text("code"), text("message"))
}
