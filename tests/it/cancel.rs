//! Cancel always works, within a bound, whatever the turn does; nothing is executed after it.

use std::time::{Duration, Instant};

use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::wire::is_terminal;
use scv_tests::{Attached, TestEnv, Wire, eventually, wait};
use serde_json::{Value, json};

/// What is awaited and takes no time of its own; the rest is for a loaded machine.
const AT_ONCE: Duration = Duration::from_secs(1);

/// SIGTERM, 2 s of grace, SIGKILL: 2.3 s are promised; the rest is for a loaded machine.
const WITH_GRACE: Duration = Duration::from_secs(3);

fn running() -> (TestEnv, Model, Wire, String) {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    env.start();
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
    (env, model, wire, session)
}

/// Cancels the running turn; what comes from then on, and how long it took.
#[track_caller]
fn cancel(wire: &mut Wire, session: &str, turn: &Value) -> (Vec<Value>, Duration) {
    let start = Instant::now();
    wire.request(json!({"type": "turn.cancel", "session_id": session, "turn_id": turn}));
    let events = wire.turn();
    let end = events.last().unwrap();
    assert_eq!((&end["type"], &end["turn_id"]), (&json!("turn.cancelled"), turn), "{}", wire.report());
    (events, start.elapsed())
}

/// The session takes another prompt, and the model sees a result for every call.
#[track_caller]
fn it_goes_on(model: &Model, wire: &mut Wire, session: &str) {
    model.push(Reply::text("well"));
    wire.prompt(session, "go on");
    assert_eq!(wire.turn().pop().unwrap()["type"], "turn.completed");
    let request = wait(model.requests()).pop().unwrap();
    let calls = request.input().iter().filter(|item| item["type"] == "function_call");
    for call in calls {
        assert!(request.output(call["call_id"].as_str().unwrap()).is_some(), "no output: {call}");
    }
}

#[track_caller]
fn runs(env: &TestEnv, mark: &str) {
    eventually("the command runs", scv_tests::DEADLINE, || env.work().join(mark).exists());
}

#[test]
fn while_an_answer_streams() {
    let (env, model, mut wire, session) = running();
    let gate = Gate::new();
    model.push(Reply::new().delta("half").stall(&gate));
    wire.prompt(&session, "speak");
    let delta = wire.until_type("assistant.delta");
    let (_, took) = cancel(&mut wire, &session, &delta["turn_id"]);
    assert!(took < AT_ONCE, "{took:?}");
    wait(gate.left());
    it_goes_on(&model, &mut wire, &session);
    drop(wire);
    env.finish();
}

#[test]
fn while_the_provider_says_nothing() {
    let (env, model, mut wire, session) = running();
    let silent = Gate::new();
    model.push(Reply::garbage("").stall(&silent));
    wire.prompt(&session, "speak");
    let started = wire.until_type("turn.started");
    wait(silent.reached());
    let (_, took) = cancel(&mut wire, &session, &started["turn_id"]);
    assert!(took < AT_ONCE, "{took:?}");
    wait(silent.left());
    it_goes_on(&model, &mut wire, &session);
    drop(wire);
    env.finish();
}

#[test]
fn while_the_provider_sends_only_keep_alives() {
    let (env, model, mut wire, session) = running();
    let gate = Gate::new();
    model.push(Reply::new().comments_until(Duration::from_millis(5), &gate));
    wire.prompt(&session, "speak");
    let started = wire.until_type("turn.started");
    wait(gate.reached());
    let (_, took) = cancel(&mut wire, &session, &started["turn_id"]);
    assert!(took < AT_ONCE, "{took:?}");
    drop(wire);
    env.finish();
}

#[test]
fn while_a_retry_waits() {
    let (env, model, mut wire, session) = running();
    model.push(Reply::error("429 Too Many Requests", "rate_limit_exceeded", "slow").header("retry-after", "30"));
    wire.prompt(&session, "speak");
    let started = wire.until_type("turn.started");
    wait(model.next_request());
    let (_, took) = cancel(&mut wire, &session, &started["turn_id"]);
    assert!(took < AT_ONCE, "{took:?}");
    it_goes_on(&model, &mut wire, &session);
    drop(wire);
    env.finish();
}

#[test]
fn while_an_approval_waits() {
    let (env, model, mut wire, session) = running();
    model.push(Reply::new().call("bash", &json!({"command": "touch made"})));
    wire.prompt(&session, "work");
    let asked = wire.until_type("approval.requested");
    let (events, took) = cancel(&mut wire, &session, &asked["turn_id"]);
    assert!(took < AT_ONCE, "{took:?}");
    assert!(!events.iter().any(|event| event["type"] == "tool.started"), "{events:?}");
    // An answer that comes too late does nothing.
    wire.resolve(&asked, true);
    assert_eq!(wire.until_type("error")["code"], "invalid_request");
    it_goes_on(&model, &mut wire, &session);
    assert!(!env.work().join("made").exists());
    drop(wire);
    env.finish();
}

#[test]
fn while_a_command_ignores_every_polite_signal() {
    let (env, model, mut wire, session) = running();
    let command = "trap '' TERM INT HUP; (setsid sh -c \"trap '' TERM; sleep 601\" &); touch mark; \
                   while true; do sleep 1; done; touch after";
    model.push(Reply::new().call("bash", &json!({"command": command})).call("bash", &json!({"command": "touch next"})));
    wire.prompt(&session, "work");
    let asked = wire.approve();
    runs(&env, "mark");
    let (events, took) = cancel(&mut wire, &session, &asked["turn_id"]);
    assert!(took < WITH_GRACE, "{took:?}");
    assert_eq!(env.children(), [], "gone when it is told");
    let completed = events.iter().find(|event| event["type"] == "tool.completed").unwrap();
    assert_eq!((&completed["success"], &completed["error"]), (&json!(false), &json!("cancelled")), "{completed}");
    let starts = |event: &&Value| event["type"] == "tool.started" && event["call_id"] == "call_1";
    assert_eq!(events.iter().find(starts), None, "the next call does not start");
    assert_eq!(wait(model.requests()).len(), 1, "the model is not asked again");
    it_goes_on(&model, &mut wire, &session);
    assert!(!env.work().join("after").exists() && !env.work().join("next").exists());
    drop(wire);
    env.finish();
}

#[test]
fn a_command_with_children_that_leave_when_told_costs_no_grace() {
    let (env, model, mut wire, session) = running();
    let command = "setsid sleep 600 & sleep 601 & (sleep 602 & exit) & touch mark; wait";
    model.push(Reply::new().call("bash", &json!({"command": command})));
    wire.prompt(&session, "work");
    let asked = wire.approve();
    runs(&env, "mark");
    let (_, took) = cancel(&mut wire, &session, &asked["turn_id"]);
    // 200 ms are promised.
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(env.children(), []);
    drop(wire);
    env.finish();
}

#[test]
fn another_client_may_cancel_and_twice_is_once() {
    let (env, model, mut wire, session) = running();
    let gate = Gate::new();
    model.push(Reply::new().delta("half").stall(&gate));
    wire.prompt(&session, "speak");
    let delta = wire.until_type("assistant.delta");
    let mut other = Attached::to(&env, &session, 0).wire;
    for client in [&mut other, &mut wire] {
        let message = json!({"type": "turn.cancel", "session_id": session, "turn_id": delta["turn_id"]});
        client.request(message);
    }
    for client in [&mut other, &mut wire] {
        let end = client.until("the end", is_terminal);
        assert_eq!(end["type"], "turn.cancelled");
    }
    // Exactly one of the two came too late, or neither did: there is one end.
    let ends = Attached::to(&env, &session, 0).events.iter().filter(|event| is_terminal(event)).count();
    assert_eq!(ends, 1);
    let unknown = other.ask(json!({"type": "turn.cancel", "session_id": session, "turn_id": delta["turn_id"]}));
    assert_eq!(unknown["code"], "invalid_request", "{unknown}");
    drop((wire, other));
    env.finish();
}

#[test]
fn a_prompt_that_waits_runs_after_the_cancelled_one() {
    let (env, model, mut wire, session) = running();
    let gate = Gate::new();
    model.push(Reply::new().delta("half").stall(&gate));
    model.push(Reply::text("second"));
    wire.prompt(&session, "one");
    let delta = wire.until_type("assistant.delta");
    wire.prompt(&session, "two");
    wire.until_type("queue.enqueued");
    cancel(&mut wire, &session, &delta["turn_id"]);
    assert_eq!(wire.turn().pop().unwrap()["type"], "turn.completed");
    drop(wire);
    env.finish();
}
