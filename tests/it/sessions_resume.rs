//! `scv sessions resume`: prompts that a failed turn or a death left waiting.

use scv_tests::fakes::model::{Gate, Model, Reply, Request};
use scv_tests::{DEADLINE, TestEnv, Wire, eventually, wait};
use serde_json::{Value, json};

/// A session of `on_disconnect` whose turn waits at a gate, with two prompts in its queue.
fn busy(on_disconnect: &str) -> (TestEnv, Model, Wire, String, Gate) {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    env.start();
    let mut wire = Wire::connect(&env);
    wire.initialize(&["attach", "approvals"]);
    let session = wire.session(&env, &json!({"on_disconnect": on_disconnect}));
    let gate = Gate::new();
    model.push(Reply::new().delta("…").stall(&gate));
    wire.prompt(&session, "running");
    wait(gate.reached());
    for prompt in ["a", "b"] {
        wire.prompt(&session, prompt);
        wire.until_type("queue.enqueued");
    }
    (env, model, wire, session, gate)
}

fn entry(env: &TestEnv, session: &str) -> Value {
    env.session_entry(session).unwrap()
}

#[test]
fn prompts_that_waited_when_the_worker_died_run_in_their_order_without_a_client() {
    // The client that would have the session closed at its end is gone by then.
    let (env, model, mut wire, session, _gate) = busy("close");
    env.worker_of(&session).kill();
    wire.until_closed();
    eventually("it is back, paused", DEADLINE, || entry(&env, &session)["queue"] == 2);
    model.answer(|request| Some(Reply::text(&request.prompt())));
    let said = env.scv(&["sessions", "resume", &session, "--json"]);
    let said: Value = serde_json::from_str(&said.exits(0).stdout).unwrap();
    assert_eq!(said, json!({"id": session, "was_paused": true, "waiting": 2}));
    eventually("both ran", DEADLINE, || {
        let entry = entry(&env, &session);
        (&entry["queue"], &entry["state"], &entry["clients"]) == (&json!(0), &json!("idle"), &json!(0))
    });
    let prompts: Vec<String> = wait(model.requests()).iter().map(Request::prompt).collect();
    assert_eq!(prompts, ["running", "a", "b"]);
    env.finish();
}

#[test]
fn exec_says_how_prompts_that_wait_paused_are_run_and_that_works() {
    let (env, model, mut wire, session, gate) = busy("keep");
    wire.request(json!({"type": "session.pause", "session_id": session, "paused": true}));
    wire.until_type("queue.snapshot");
    let not_added = env.scv(&["exec", "--session", &session, "more"]);
    let told = not_added.exits(1).stderr.clone();
    assert!(told.contains(&format!("`scv sessions resume {session}` runs them")), "{told}");
    gate.release();
    wire.turn();
    model.answer(|request| Some(Reply::text(&request.prompt())));
    let said = env.scv(&["sessions", "resume", &session]);
    assert!(said.exits(0).stdout.contains("goes on with 2 prompts"), "{said:?}");
    for _ in 0..2 {
        assert_eq!(wire.turn().pop().unwrap()["type"], "turn.completed");
    }
    let again = env.scv(&["sessions", "resume", &session]);
    assert!(again.exits(0).stdout.contains("is not paused, and no prompt waits"), "{again:?}");
    let unknown = env.scv(&["sessions", "resume", &uuid::Uuid::now_v7().to_string()]);
    assert!(unknown.exits(1).stderr.contains("there is no session"), "{unknown:?}");
    drop(wire);
    env.finish();
}
