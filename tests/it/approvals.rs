//! Approvals: who is asked, who answers, and what becomes of a question that nobody answers.

use std::time::{Duration, Instant};

use scv_tests::fakes::model::{Model, Reply};
use scv_tests::{Attached, TestEnv, Wire, wait};
use serde_json::{Value, json};

/// What runs out after a second has run out by then, on a loaded machine too.
const SOON: Duration = Duration::from_secs(5);

struct Case {
    env: TestEnv,
    model: Model,
    wire: Wire,
    session: String,
}

/// A session that wants to touch `made`, and asks.
fn asking(config: &str, features: &[&str]) -> (Case, Value) {
    let model = Model::start_blocking();
    let env = TestEnv::new();
    env.configure(&model.url(), config);
    env.start();
    let mut wire = Wire::connect(&env);
    wire.initialize(features);
    let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
    model.push(Reply::new().call("bash", &json!({"command": "echo made >> made"})));
    model.push(Reply::text("well"));
    wire.prompt(&session, "work");
    let asked = wire.until_type("approval.requested");
    (Case { env, model, wire, session }, asked)
}

impl Case {
    fn made(&self) -> usize {
        std::fs::read_to_string(self.env.work().join("made")).map_or(0, |text| text.lines().count())
    }

    /// Ends the turn's test: what the model was told about the call.
    fn told(self) -> String {
        let request = wait(self.model.requests()).pop().unwrap();
        let output = request.last_output().unwrap().to_owned();
        drop(self.wire);
        self.env.finish();
        output
    }
}

#[test]
fn the_first_answer_wins_and_the_others_are_told() {
    let (mut case, asked) = asking("", &["attach", "approvals"]);
    let mut other = Attached::to(&case.env, &case.session, 0);
    let again = other.events.iter().find(|event| event["type"] == "approval.requested").cloned();
    assert_eq!(again.unwrap()["approval_id"], asked["approval_id"]);
    other.wire.resolve(&asked, true);
    for wire in [&mut case.wire, &mut other.wire] {
        let resolved = wire.until_type("approval.resolved");
        assert_eq!((&resolved["approval_id"], &resolved["approved"]), (&asked["approval_id"], &json!(true)));
    }
    case.wire.resolve(&asked, false);
    assert_eq!(case.wire.until_type("error")["code"], "invalid_request");
    assert_eq!(case.wire.turn().pop().unwrap()["type"], "turn.completed");
    assert_eq!(case.made(), 1);
    drop(other);
    case.told();
}

#[test]
fn an_open_question_is_asked_again_of_whoever_attaches_with_the_same_id() {
    let (case, asked) = asking("", &["attach", "approvals"]);
    let seen = asked["seq"].as_u64().unwrap();
    for after in [0, seen - 1, seen] {
        let mut attached = Attached::to(&case.env, &case.session, after);
        let mut found = attached.events.clone();
        if !found.iter().any(|event| event["type"] == "approval.requested") {
            found.push(attached.wire.until_type("approval.requested"));
        }
        let asks: Vec<&Value> = found.iter().filter(|event| event["type"] == "approval.requested").collect();
        assert_eq!(asks.len(), 1, "after {after}: {found:?}");
        assert_eq!(asks[0]["approval_id"], asked["approval_id"]);
        assert!(attached.wire.quiet_for(Duration::from_millis(50)), "once{}", attached.wire.report());
    }
    let Case { mut wire, env, .. } = case;
    wire.resolve(&asked, false);
    let completed = wire.until_type("tool.completed");
    assert_eq!((&completed["success"], &completed["error"]), (&json!(false), &json!("denied")));
    wire.turn();
    assert!(!env.work().join("made").exists());
    drop(wire);
    env.finish();
}

#[test]
fn a_question_that_nobody_attached_can_answer_is_denied_and_not_by_the_user() {
    // A client that shows sessions and cannot answer: it attaches without the feature.
    let (mut case, asked) = asking("[session]\nunattended_approval_seconds = 1", &["attach"]);
    let start = Instant::now();
    let completed = case.wire.until_type("tool.completed");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!((&completed["call_id"], &completed["error"]), (&asked["call_id"], &json!("denied")));
    case.wire.turn();
    assert_eq!(case.made(), 0);
    let told = case.told();
    assert!(told.contains("nobody could answer"), "{told}");
}

#[test]
fn a_question_waits_longer_while_somebody_can_answer() {
    let config = "[session]\napproval_seconds = 86400\nunattended_approval_seconds = 1";
    let (mut case, asked) = asking(config, &[]);
    assert!(case.wire.quiet_for(Duration::from_millis(1500)), "a plain client can answer{}", case.wire.report());
    case.wire.resolve(&asked, true);
    assert_eq!(case.wire.turn().pop().unwrap()["type"], "turn.completed");
    assert_eq!(case.made(), 1);
    case.told();
}

#[test]
fn a_question_runs_out_when_its_client_has_gone() {
    let config = "[session]\nunattended_approval_seconds = 1";
    let (Case { env, model, wire, session }, _asked) = asking(config, &["attach", "approvals"]);
    drop(wire);
    scv_tests::eventually("the turn ends", SOON, || env.session_entry(&session).unwrap()["state"] == "idle");
    let told = wait(model.requests()).pop().unwrap().last_output().unwrap().to_owned();
    assert!(told.contains("nobody could answer"), "{told}");
    let attached = Attached::to(&env, &session, 0);
    assert_eq!(attached.events.last().unwrap()["type"], "turn.completed");
    drop(attached);
    env.finish();
}

#[test]
fn a_user_who_says_no_is_named_as_the_reason() {
    let (mut case, asked) = asking("", &[]);
    case.wire.resolve(&asked, false);
    let events = case.wire.turn();
    assert!(!events.iter().any(|event| event["type"] == "tool.started"), "{events:?}");
    assert_eq!(case.made(), 0);
    let told = case.told();
    assert!(told.contains("denied by the user"), "{told}");
}
