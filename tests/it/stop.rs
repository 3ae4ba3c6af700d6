//! Stopping while something runs: bounded, complete, and nothing that was accepted is lost.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::{TestEnv, Wire, eventually, wait};
use serde_json::{Value, json};

/// Two seconds for what does not leave by itself, and the scheduling of a loaded machine.
const BOUND: Duration = Duration::from_secs(5);

fn running() -> (TestEnv, Model) {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    env.start();
    (env, model)
}

/// Starts a turn that runs `command`, and waits until it does.
fn busy(env: &TestEnv, model: &Model, command: &str) -> (Wire, String) {
    model.push(Reply::new().call("bash", &json!({"command": format!("touch mark; {command}")})));
    let mut wire = Wire::plain(env);
    let session = wire.session(env, &json!({"on_disconnect": "keep"}));
    wire.prompt(&session, "work");
    let asked = wire.until_type("approval.requested");
    wire.send(&json!({"type": "approval.resolve", "request_id": "a", "session_id": session,
        "approval_id": asked["approval_id"], "approved": true}));
    eventually("the command runs", scv_tests::DEADLINE, || env.work().join("mark").exists());
    (wire, session)
}

#[test]
fn stop_ends_a_tool_that_ignores_every_polite_signal() {
    let (env, model) = running();
    let (wire, _) = busy(&env, &model, "trap '' TERM INT HUP; setsid sleep 600 & sleep 601");
    let start = Instant::now();
    env.scv(&["stop"]).exits(0);
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    env.supervisor_output().exits(0);
    env.gone_within(Duration::from_secs(1), TestEnv::processes);
    drop(wire);
    env.finish();
}

#[test]
fn a_turn_that_was_stopped_is_told_as_its_last_event_and_again_at_attach() {
    let (env, model) = running();
    let (mut wire, session) = busy(&env, &model, "sleep 600");
    env.scv(&["stop"]).exits(0);
    env.supervisor_output().exits(0);
    let events = wire.until_closed();
    let ends: Vec<&Value> = events.iter().filter(|event| scv_tests::wire::is_terminal(event)).collect();
    assert_eq!(ends.len(), 1, "{events:#?}");
    drop(wire);
    env.start();
    let mut wire = Wire::connect(&env);
    wire.initialize(&["attach"]);
    let attached = wire.ask(json!({"type": "session.attach", "session_id": session, "after_seq": 0}));
    assert_eq!(attached["type"], "session.attached");
    let mut again = wire.until("the turn's end in the replay", scv_tests::wire::is_terminal);
    // The same event; only whose request it was reads differently for another connection.
    assert!(again["request_id"].as_str().unwrap().starts_with("client:"), "{again}");
    again["request_id"] = ends[0]["request_id"].clone();
    assert_eq!(&again, ends[0]);
    env.finish();
}

#[test]
fn a_turn_whose_worker_cannot_be_asked_is_told_as_stopped_too_and_not_as_a_crash() {
    let (env, model) = running();
    let (wire, session) = busy(&env, &model, "sleep 600");
    env.worker_of(&session).signal(Signal::STOP);
    env.scv(&["stop"]).exits(0);
    env.supervisor_output().exits(0);
    drop(wire);
    env.start();
    let attached = scv_tests::Attached::to(&env, &session, 0);
    let ends: Vec<&Value> = attached.events.iter().filter(|event| scv_tests::wire::is_terminal(event)).collect();
    assert_eq!(ends.len(), 1, "{ends:#?}");
    assert_eq!(ends[0]["code"], "unavailable", "{ends:?}");
    assert!(ends[0]["message"].as_str().unwrap().starts_with("interrupted: stopped"), "{ends:?}");
    drop(attached);
    env.finish();
}

#[test]
fn a_client_that_reads_nothing_of_a_running_answer_does_not_delay_the_stop() {
    let (env, model) = running();
    let gate = Gate::new();
    let text = "x".repeat(64 << 10);
    model.push(Reply::new().deltas(vec![text.as_str(); 14]).stall(&gate));
    let mut deaf = env.connect().unwrap();
    let hello = json!({"type": "initialize", "request_id": "1", "protocol_version": 3, "client": {"name": "t", "version": "1"}});
    let start = json!({"type": "session.start", "request_id": "2", "cwd": env.work()});
    writeln!(deaf, "{hello}\n{start}").unwrap();
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("queue.snapshot") {
        let mut chunk = [0; 4096];
        let read = deaf.read(&mut chunk).unwrap();
        assert!(read > 0, "closed after {}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&chunk[..read]);
    }
    let session = String::from_utf8_lossy(&said).lines().find_map(|line| {
        let event: Value = serde_json::from_str(line).ok()?;
        event["session_id"].as_str().map(str::to_owned)
    });
    let turn = json!({"type": "turn.start", "request_id": "3", "session_id": session.unwrap(), "prompt": "go"});
    writeln!(deaf, "{turn}").unwrap();
    wait(gate.reached());
    let start = Instant::now();
    env.scv(&["stop"]).exits(0);
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    env.supervisor_output().exits(0);
    env.finish();
}

#[test]
fn half_closing_during_a_turn_still_gets_its_end() {
    let (env, model) = running();
    let gate = Gate::new();
    model.push(Reply::new().delta("a").stall(&gate).delta("b"));
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
    wire.prompt(&session, "go");
    wire.until_type("assistant.delta");
    wire.close_write();
    gate.release();
    let events = wire.until_closed();
    assert!(events.iter().any(scv_tests::wire::is_terminal), "{events:#?}");
    env.finish();
}

#[test]
fn a_killed_worker_leaves_nothing_and_the_others_do_not_notice() {
    let (env, model) = running();
    let (mut wire, session) = busy(&env, &model, "setsid env -i sleep 600 & sleep 601");
    let mut other = Wire::plain(&env);
    let neighbour = other.session(&env, &json!({}));
    let status = Wire::plain(&env).control(&json!({"action": "sessions"}));
    let entries = status["sessions"]["entries"].as_array().unwrap().clone();
    let entry = entries.iter().find(|entry| entry["id"] == json!(session)).unwrap();
    let worker =
        env.running("scv-worker").into_iter().find(|process| entry["worker_pid"] == json!(process.pid)).unwrap();
    worker.signal(Signal::KILL);
    env.gone_within(Duration::from_secs(2), TestEnv::children);
    wire.until_closed();
    other.request(json!({"type": "session.pause", "session_id": neighbour, "paused": true}));
    other.until("the neighbour's answer", |event| event["paused"] == json!(true));
    // And the session comes back, its turn told as interrupted, once.
    let mut wire = Wire::connect(&env);
    wire.initialize(&["attach"]);
    let attached = wire.ask(json!({"type": "session.attach", "session_id": session, "after_seq": 0}));
    assert_eq!(attached["type"], "session.attached", "{attached}");
    let end = wire.until("the turn's end", scv_tests::wire::is_terminal);
    assert_eq!((&end["type"], &end["code"]), (&json!("turn.failed"), &json!("session_crashed")));
    eventually("no zombie is left", Duration::from_secs(1), || env.zombies().is_empty());
    env.finish();
}
