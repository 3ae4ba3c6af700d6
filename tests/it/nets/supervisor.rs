//! The supervisor dies in the middle of everything, and nobody notices (C1).

use rustix::process::Signal;
use scv_tests::env::binary_path;
use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::{Attached, DEADLINE, TestEnv, Wire, eventually};
use serde_json::{Value, json};

fn numbers(events: &[Value]) -> Vec<u64> {
    events.iter().filter_map(|event| event["seq"].as_u64()).collect()
}

#[test]
fn a_turn_with_an_agent_at_work_and_two_clients_goes_on_to_its_end() {
    let model = Model::start_blocking();
    let env = TestEnv::new();
    env.configure(
        &model.url(),
        &format!("[agents.codex]\ncommand = \"{}\"\nargs = [\"--demo-agent\"]\n", binary_path("scv-worker").display()),
    );
    env.start_guarded();
    let gate = Gate::new();
    let held = gate.clone();
    let call = json!({"agent": "codex", "prompt": "look around"}).to_string();
    model.script([
        Reply::new().deltas(["I ", "ask ", "somebody."]).call_as("c-1", "agent", &call),
        Reply::new().deltas(["Before ", "and "]).stall(&held),
    ]);
    let mut wire = Wire::connect(&env);
    wire.initialize(&["attach", "approvals"]);
    let session = wire.session(&env, &json!({"on_disconnect": "keep", "auto_approve": true}));
    let mut other = Attached::to(&env, &session, 0).wire;
    wire.prompt(&session, "go");
    let mut told = wire.collect("the agent at work", |event| event["type"] == "tool.started");
    let agent = || env.processes().into_iter().find(|process| process.args.iter().any(|arg| arg == "--demo-agent"));
    eventually("the agent's process is there", DEADLINE, || agent().is_some());
    let agent = agent().unwrap();
    let worker = env.worker_of(&session);

    let scvd = env.running("scvd").pop().unwrap();
    scvd.signal(Signal::KILL);
    eventually("another supervisor serves", DEADLINE, || {
        env.running("scvd").iter().any(|now| now.pid != scvd.pid) && env.connect().is_ok()
    });
    let entry = env.session_entry(&session).unwrap();
    assert_eq!((&entry["state"], &entry["clients"]), (&json!("working"), &json!(2)), "{entry}");
    assert_eq!(env.worker_of(&session), worker);

    told.extend(wire.collect("the agent's result", |event| event["type"] == "tool.completed"));
    assert_eq!(told.last().unwrap()["success"], true, "{:?}", told.last());
    assert!(told.last().unwrap()["output"].as_str().unwrap().contains("look around"));
    assert!(!agent.is_alive());
    told.extend(wire.collect("the answer", |event| event["content"] == "and "));
    // Once more, while text streams.
    let scvd = env.running("scvd").pop().unwrap();
    scvd.signal(Signal::KILL);
    gate.release();
    told.extend(wire.turn());
    assert_eq!(told.last().unwrap()["type"], "turn.completed");
    let first = numbers(&told);
    assert!(first.windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap or a repeat: {first:?}");
    let second = numbers(&other.turn());
    assert_eq!(first, second.into_iter().filter(|seq| *seq >= first[0]).collect::<Vec<_>>());

    // The later death of a worker that was adopted is seen and cleaned up as that of an own one.
    eventually("another supervisor serves", DEADLINE, || {
        env.running("scvd").iter().any(|now| now.pid != scvd.pid) && env.connect().is_ok()
    });
    worker.signal(Signal::KILL);
    wire.until_closed();
    // It had no work, so nothing of it is lost and nothing has to be told.
    eventually("it is seen", DEADLINE, || {
        env.session_entry(&session).is_some_and(|entry| entry["worker_pid"].is_null())
    });
    let back = Attached::to(&env, &session, 0);
    drop((wire, other, back));
    env.finish();
}
