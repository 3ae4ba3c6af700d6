//! An idle session's worker leaves, and whoever attaches finds the session as if it had not.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use scv_tests::fakes::model::{Model, Reply, Request};
use scv_tests::{Attached, DEADLINE, TestEnv, Wire, eventually, wait};
use serde_json::{Value, json};

fn sleepy(model: &Model) -> TestEnv {
    let env = TestEnv::new();
    let worker = scv_tests::env::binary_path("scv-worker");
    env.configure(
        &model.url(),
        &format!(
            "[session]\nhibernate_seconds = 1\n\n[agents.codex]\ncommand = \"{}\"\nargs = [\"--demo-agent\"]\n",
            worker.display()
        ),
    );
    env.start();
    env
}

fn state(env: &TestEnv, session: &str) -> String {
    env.session_entry(session).unwrap()["state"].as_str().unwrap().to_owned()
}

/// A conversation with everything that the next request has to repeat.
fn story(model: &Model, wire: &mut Wire, env: &TestEnv, session: &str) {
    env.file("note.txt", "the door is blue\n");
    let read = json!({"path": "note.txt"}).to_string();
    let bash = json!({"command": "echo hello; exit 3"}).to_string();
    let agent = json!({"agent": "codex", "prompt": "look around"}).to_string();
    model.script([
        Reply::new().reasoning("let me see").delta("Reading. ").call_as("c-1", "read", &read),
        Reply::text("It is blue — not grün, 🚪."),
        // A call that fails, one that is denied.
        Reply::new().call_as("c-2", "bash", &bash),
        Reply::new().call_as("c-3", "bash", &bash),
        Reply::text("One failed, one was denied."),
        Reply::new().call_as("c-4", "agent", &agent),
        Reply::text("The agent has looked around."),
        Reply::error("400 Bad Request", "invalid_request_error", "no such thing"),
    ]);
    wire.prompt(session, "Which colour has the door?");
    wire.turn();
    wire.prompt(session, "Run it twice.");
    for approved in [true, false] {
        let asked = wire.until_type("approval.requested");
        wire.resolve(&asked, approved);
    }
    wire.turn();
    wire.prompt(session, "Ask somebody.");
    wire.approve();
    wire.turn();
    wire.prompt(session, "Fail.");
    let failed = wire.turn().pop().unwrap();
    assert_eq!(failed["type"], "turn.failed");
    model.answer(move |request| {
        (request.prompt() == "Too long.")
            .then(|| Reply::new().delta("Well, ").stall(&scv_tests::fakes::model::Gate::new()))
    });
    wire.prompt(session, "Too long.");
    let started = wire.until_type("turn.started");
    wire.until_type("assistant.delta");
    wire.request(json!({"type": "turn.cancel", "session_id": session, "turn_id": started["turn_id"]}));
    let cancelled = wire.turn().pop().unwrap();
    assert_eq!(cancelled["type"], "turn.cancelled");
}

/// The next request of a session: what the model is asked.
fn next_request(model: &Model, wire: &mut Wire, session: &str) -> Request {
    let before = wait(model.requests()).len();
    model.push(Reply::text("Well."));
    wire.prompt(session, "And now?");
    let end = wire.turn().pop().unwrap();
    assert_eq!(end["type"], "turn.completed", "{end}");
    wait(model.requests())[before].clone()
}

/// The bytes of a request, without what names the session and its conversations' processes.
fn comparable(request: &Request, session: &str) -> String {
    String::from_utf8(request.bytes.clone()).unwrap().replace(session, "SESSION")
}

fn start(env: &TestEnv) -> (Wire, String) {
    let mut wire = Wire::connect(env);
    wire.initialize(&["attach", "approvals"]);
    let session = wire.session(env, &json!({"on_disconnect": "keep"}));
    (wire, session)
}

fn last_seq(events: &[Value]) -> u64 {
    events.iter().filter_map(|event| event["seq"].as_u64()).max().unwrap()
}

/// Puts the session to sleep by leaving it, and comes back.
fn sleep_and_wake(env: &TestEnv, wire: Wire, session: &str) -> Attached {
    drop(wire);
    eventually("it sleeps", DEADLINE, || state(env, session) == "hibernated");
    assert!(!env.layout().wanted().join(session).exists());
    Attached::to(env, session, 0)
}

#[test]
fn the_next_request_is_the_one_of_a_twin_that_never_slept() {
    let model = Model::start_blocking();
    let env = sleepy(&model);
    let (mut awake, twin) = start(&env);
    story(&model, &mut awake, &env, &twin);
    let (mut sleeper, session) = start(&env);
    story(&model, &mut sleeper, &env, &session);
    let mut back = sleep_and_wake(&env, sleeper, &session);

    let expected = next_request(&model, &mut awake, &twin);
    let found = next_request(&model, &mut back.wire, &session);
    assert_eq!(expected.headers, found.headers);
    let (expected, found) = (comparable(&expected, &twin), comparable(&found, &session));
    let at = expected.bytes().zip(found.bytes()).position(|(a, b)| a != b).unwrap_or(0);
    let near = |text: &str| {
        String::from_utf8_lossy(&text.as_bytes()[at.saturating_sub(80)..]).chars().take(240).collect::<String>()
    };
    assert!(expected == found, "they differ at byte {at}:\n{}\n{}", near(&expected), near(&found));
    drop((awake, back));
    env.finish();
}

#[test]
fn a_killed_idle_worker_costs_no_more_than_a_sleep() {
    let model = Model::start_blocking();
    let env = sleepy(&model);
    let (mut awake, twin) = start(&env);
    story(&model, &mut awake, &env, &twin);
    let (mut killed, session) = start(&env);
    story(&model, &mut killed, &env, &session);
    env.worker_of(&session).signal(Signal::KILL);
    killed.until_closed();
    let mut back = Attached::to(&env, &session, 0);
    let expected = comparable(&next_request(&model, &mut awake, &twin), &twin);
    let found = comparable(&next_request(&model, &mut back.wire, &session), &session);
    assert!(expected == found, "{expected}\n{found}");
    drop((awake, back, killed));
    env.finish();
}

#[test]
fn numbers_go_on_and_the_queue_and_the_conversations_are_there() {
    let model = Model::start_blocking();
    let env = sleepy(&model);
    let (mut wire, session) = start(&env);
    story(&model, &mut wire, &env, &session);
    wire.request(json!({"type": "session.pause", "session_id": session, "paused": true}));
    // What waits is kept waiting; it does not keep the worker.
    model.push(Reply::new().delta("busy").stall(&scv_tests::fakes::model::Gate::new()));
    wire.prompt(&session, "first");
    let started = wire.until_type("turn.started");
    wire.prompt(&session, "second");
    let queued = wire.until_type("queue.enqueued");
    wire.request(json!({"type": "turn.cancel", "session_id": session, "turn_id": started["turn_id"]}));
    let told = wire.turn();
    let before = last_seq(&told);
    let mut back = sleep_and_wake(&env, wire, &session);
    assert_eq!(back.queue["paused"], true, "{}", back.queue);
    assert_eq!(back.queue["entries"][0]["queue_id"], queued["entry"]["queue_id"], "{}", back.queue);
    let after = back.attached["to_seq"].as_u64().unwrap();
    assert!(after >= before, "{after} after {before}");

    // The handle of the agent's conversation still works.
    let again = json!({"agent": "codex", "session": "codex-1", "prompt": "once more"}).to_string();
    model.script([Reply::new().call_as("c-9", "agent", &again), Reply::text("Twice."), Reply::text("Second.")]);
    back.wire.prompt(&session, "Ask again.");
    back.wire.approve();
    let done = back.wire.until_type("tool.completed");
    assert_eq!(done["success"], true, "{done}");
    back.wire.turn();
    drop(back);
    env.finish();
}

#[test]
fn clients_that_come_at_the_moment_of_falling_asleep_are_served() {
    let model = Model::start_blocking();
    model.answer(|_| Some(Reply::text("Here.")));
    let env = sleepy(&model);
    let (wire, session) = start(&env);
    drop(wire);
    // It falls asleep a second after its last client: one comes just around that.
    for round in 0..12_u64 {
        let left = Instant::now();
        let due = Duration::from_millis(940 + round * 12);
        eventually("the moment has come", DEADLINE, || left.elapsed() >= due);
        let mut back = Attached::to(&env, &session, 0);
        back.wire.prompt(&session, "There?");
        let end = back.wire.turn().pop().unwrap();
        assert_eq!(end["type"], "turn.completed", "round {round}: {end}");
    }
    env.finish();
}
