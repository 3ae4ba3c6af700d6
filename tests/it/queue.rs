//! Prompts that wait: their order, changes, pause and clear, as every client sees them.

use scv_tests::fakes::model::{Gate, Model, Reply, Request};
use scv_tests::{Attached, TestEnv, Wire, wait};
use serde_json::{Value, json};

/// A session whose turn waits at a gate, with three prompts in the queue.
struct Case {
    env: TestEnv,
    model: Model,
    wire: Wire,
    session: String,
    gate: Gate,
    entries: Vec<Value>,
}

impl Case {
    fn new() -> Self {
        let model = Model::start_blocking();
        let env = TestEnv::with_model(&model.url());
        env.start();
        let mut wire = Wire::plain(&env);
        let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
        let gate = Gate::new();
        model.push(Reply::new().delta("…").stall(&gate));
        wire.prompt(&session, "running");
        wait(gate.reached());
        let mut entries = Vec::new();
        for (position, prompt) in ["a", "b", "c"].into_iter().enumerate() {
            wire.prompt(&session, prompt);
            let enqueued = wire.until_type("queue.enqueued");
            assert_eq!(enqueued["position"], json!(position));
            entries.push(enqueued["entry"].clone());
        }
        Self { env, model, wire, session, gate, entries }
    }

    /// A queue operation on entry `nth`; its answer.
    fn ask(&mut self, kind: &str, nth: usize, more: &Value) -> Value {
        let mut message = json!({"type": kind, "session_id": self.session,
            "queue_id": self.entries[nth]["queue_id"], "revision": self.entries[nth]["revision"]});
        for (key, value) in more.as_object().into_iter().flatten() {
            message[key] = value.clone();
        }
        self.wire.ask(message)
    }

    /// Lets everything run that waits; the prompts in their order.
    fn run_out(mut self, turns: usize) -> Vec<String> {
        self.model.answer(|request| Some(Reply::text(&request.prompt())));
        self.gate.release();
        for _ in 0..turns {
            assert_eq!(self.wire.turn().pop().unwrap()["type"], "turn.completed");
        }
        let prompts = wait(self.model.requests()).iter().map(Request::prompt).collect();
        drop(self.wire);
        self.env.finish();
        prompts
    }
}

#[test]
fn they_run_in_their_order_each_when_the_one_before_is_done() {
    assert_eq!(Case::new().run_out(4), ["running", "a", "b", "c"]);
}

#[test]
fn a_change_a_move_and_a_removal_are_told_to_everybody_and_take_effect() {
    let mut case = Case::new();
    let mut other = Attached::to(&case.env, &case.session, 0);
    assert_eq!(other.queue["entries"].as_array().unwrap().len(), 3, "{}", other.queue);
    let updated = case.ask("queue.update", 0, &json!({"prompt": "A"}));
    assert_eq!((&updated["entry"]["prompt"], &updated["entry"]["revision"]), (&json!("A"), &json!(2)), "{updated}");
    let before = case.entries[0]["queue_id"].clone();
    let moved = case.ask("queue.move", 2, &json!({"before_queue_id": before}));
    assert_eq!((&moved["type"], &moved["position"]), (&json!("queue.moved"), &json!(0)), "{moved}");
    let removed = case.ask("queue.remove", 1, &json!({}));
    assert_eq!(removed["type"], "queue.removed", "{removed}");
    for (kind, answer) in [("queue.updated", updated), ("queue.moved", moved), ("queue.removed", removed)] {
        let seen = other.wire.until_type(kind);
        assert_eq!(seen["seq"], answer["seq"]);
        assert!(seen["request_id"].as_str().unwrap().starts_with("client:1:"), "{seen}");
    }
    let again = Attached::to(&case.env, &case.session, 0).queue;
    let prompts: Vec<&Value> = again["entries"].as_array().unwrap().iter().map(|entry| &entry["prompt"]).collect();
    assert_eq!(prompts, ["c", "A"]);
    drop(other);
    assert_eq!(case.run_out(3), ["running", "c", "A"]);
}

#[test]
fn a_change_of_an_older_revision_is_a_conflict_with_the_entry_as_it_is() {
    let mut case = Case::new();
    case.ask("queue.update", 0, &json!({"prompt": "A"}));
    for (kind, more) in
        [("queue.update", json!({"prompt": "x"})), ("queue.move", json!({})), ("queue.remove", json!({}))]
    {
        let answer = case.ask(kind, 0, &more);
        assert_eq!((&answer["code"], &answer["entry"]["prompt"]), (&json!("queue_conflict"), &json!("A")), "{answer}");
    }
    let gone = case.ask("queue.remove", 0, &json!({"queue_id": uuid::Uuid::now_v7()}));
    assert_eq!(gone["code"], "queue_conflict", "{gone}");
    assert_eq!(case.run_out(4), ["running", "A", "b", "c"]);
}

#[test]
fn a_paused_queue_waits_until_it_is_resumed() {
    let mut case = Case::new();
    case.wire.request(json!({"type": "session.pause", "session_id": case.session, "paused": true}));
    let snapshot = case.wire.until_type("queue.snapshot");
    assert_eq!((&snapshot["paused"], snapshot["entries"].as_array().unwrap().len()), (&json!(true), 3));
    case.gate.release();
    assert_eq!(case.wire.turn().pop().unwrap()["type"], "turn.completed");
    assert!(case.wire.quiet_for(std::time::Duration::from_millis(200)), "nothing starts{}", case.wire.report());
    case.wire.request(json!({"type": "session.pause", "session_id": case.session, "paused": false}));
    assert_eq!(case.run_out(3), ["running", "a", "b", "c"]);
}

#[test]
fn clearing_forgets_the_conversation_and_goes_on_counting() {
    let mut case = Case::new();
    let busy = case.wire.ask(json!({"type": "session.clear", "session_id": case.session}));
    assert_eq!(busy["code"], "invalid_request", "{busy}");
    case.model.answer(|request| Some(Reply::text(&request.prompt())));
    case.gate.release();
    let mut last = Value::Null;
    for _ in 0..4 {
        last = case.wire.turn().pop().unwrap();
    }
    let cleared = case.wire.ask(json!({"type": "session.clear", "session_id": case.session}));
    assert_eq!(cleared["type"], "session.cleared", "{cleared}");
    assert!(cleared["seq"].as_u64() > last["seq"].as_u64(), "{last} {cleared}");
    case.wire.until_type("queue.snapshot");
    case.wire.prompt(&case.session, "fresh");
    case.wire.turn();
    let request = wait(case.model.requests()).pop().unwrap();
    let said: Vec<&Value> = request.input().iter().filter(|item| item["role"] == "user").collect();
    assert_eq!(said.len(), 1, "{said:?}");
    drop(case.wire);
    case.env.finish();
}

#[test]
fn a_failed_turn_pauses_what_waits() {
    let mut case = Case::new();
    let mut other = Attached::to(&case.env, &case.session, 0).wire;
    case.model.push(Reply::error("400 Bad Request", "invalid_request_error", "no"));
    case.gate.release();
    assert_eq!(case.wire.turn().pop().unwrap()["type"], "turn.completed");
    assert_eq!(case.wire.turn().pop().unwrap()["type"], "turn.failed");
    let snapshot = other.until("the pause", |event| event["type"] == "queue.snapshot");
    assert_eq!((&snapshot["paused"], snapshot["entries"].as_array().unwrap().len()), (&json!(true), 2), "{snapshot}");
    drop((case.wire, other));
    case.env.finish();
}

#[test]
fn a_session_that_is_closed_with_prompts_waiting_stays_down_and_keeps_them_paused() {
    let Case { env, model, mut wire, session, .. } = Case::new();
    assert!(env.layout().wanted().join(&session).exists());
    let attach = |env: &TestEnv| {
        let mut wire = Wire::connect(env);
        wire.initialize(&["attach"]);
        wire.request(json!({"type": "session.attach", "session_id": session, "after_seq": 0}));
        wire
    };
    let mut closes = attach(&env);
    closes.until_type("queue.snapshot");
    closes.send(&json!({"type": "session.close", "request_id": "close", "session_id": session}));
    assert_eq!(closes.until_type("session.closed")["request_id"], "close");
    closes.until_closed();
    wire.until_closed();
    // It was done before the client was told: nothing starts it again, and its prompts are there.
    assert!(!env.layout().wanted().join(&session).exists());
    let mut back = attach(&env);
    let snapshot = back.until_type("queue.snapshot");
    assert_eq!((snapshot["entries"].as_array().map(Vec::len), &snapshot["paused"]), (Some(3), &json!(true)));
    drop((wire, closes, back, model));
    env.finish();
}
