//! The ways a delegation ends: after each of them nothing of it is left.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use scv_tests::fakes::model::Gate;
use scv_tests::talk::of_type;
use scv_tests::wire::is_terminal;
use scv_tests::{Attached, Wire};

use super::*;

/// A command of Codex that leaves the process group, clears its marks, and does not end.
const STRAYS: &str = "setsid sleep 600 & env -i setsid sleep 601 & (setsid sh -c 'sleep 602 & sleep 603' &) & \
                      touch mark; wait";

/// Waits until every process of [`STRAYS`] runs.
#[track_caller]
fn strayed(env: &TestEnv) {
    let sleeps = || env.children().iter().filter(|child| child.name == "sleep").count();
    eventually("all of them run", scv_tests::DEADLINE, || sleeps() == 4);
}

#[test]
fn what_its_command_left_behind_is_gone_before_the_result_is_told() {
    let mut talk = talk(FULL);
    let gate = Gate::new();
    let leave = "setsid sleep 600 >/dev/null 2>&1 & env -i setsid -f sleep 601 >/dev/null 2>&1; echo ok";
    codex_answers(&talk.model, [shell(leave), Reply::new().stall(&gate).delta("ok")]);
    talk.model.push(hand_over("work", &json!({})));
    talk.model.push(Reply::text("done"));
    talk.wire.prompt(&talk.session.clone(), "go");
    wait(gate.reached());
    let sleeps = talk.env.children().into_iter().filter(|child| child.name == "sleep");
    assert_eq!(sleeps.count(), 2, "both outlive the command");
    gate.release();
    talk.wire.until_type("tool.completed");
    assert_gone(&talk.env);
    talk.wire.turn();
    assert_eq!(told(&talk.model)["status"], "completed");
    assert_eq!(talk.env.zombies(), []);
}

#[test]
fn agents_kill_ends_it_as_cancelled_and_the_turn_goes_on() {
    let mut talk = talk(FULL);
    at_work(&mut talk, STRAYS, &json!({}));
    strayed(&talk.env);
    talk.model.push(Reply::text("It was stopped."));
    let handle = record(&talk.env)["handle"].as_str().unwrap().to_owned();
    let killed = talk.env.scv(&["agents", "kill", &handle]);
    assert_eq!(killed.exits(0).stdout, format!("ended {handle}\n"));
    assert_gone(&talk.env);
    let events = talk.wire.turn();
    assert_eq!(events.last().unwrap()["type"], "turn.completed");
    assert_eq!(of_type(&events, "tool.completed")[0]["success"], json!(false));
    let result = told(&talk.model);
    assert_eq!((&result["status"], &result["exit_code"]), (&json!("cancelled"), &Value::Null));
    assert_eq!(listed(&talk.env), Vec::<Value>::new());
    let again = talk.env.scv(&["agents", "kill", &handle]);
    assert!(again.exits(1).stderr.contains(&handle), "{again:?}");
}

#[test]
fn at_its_limit_everything_is_killed_and_the_conversation_can_go_on() {
    let mut talk = talk(FULL);
    let start = Instant::now();
    at_work(&mut talk, STRAYS, &json!({"timeout_seconds": 4}));
    strayed(&talk.env);
    talk.model.push(Reply::text("It took too long."));
    talk.wire.until_type("tool.completed");
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    assert_gone(&talk.env);
    talk.wire.turn();
    let result = told(&talk.model);
    let fields = ["status", "error", "session", "turn"].map(|name| result[name].clone());
    assert_eq!(fields, [json!("timeout"), json!("Codex did not finish within 4 s"), json!("codex-1"), json!(1)]);

    codex_answers(&talk.model, [Reply::text("continued")]);
    let result = delegate(&mut talk, "go on", &json!({"session": "codex-1"}));
    assert_eq!((&result["reply"], &result["turn"]), (&json!("continued"), &json!(2)));
    let asked = codex_requests(&talk.model);
    assert_eq!(asked[0].body["prompt_cache_key"], asked[1].body["prompt_cache_key"], "the same thread");
}

#[test]
fn a_cancelled_turn_ends_it_and_says_so() {
    let mut talk = talk(FULL);
    at_work(&mut talk, STRAYS, &json!({}));
    strayed(&talk.env);
    let turn = talk.wire.until_type("tool.progress")["turn_id"].clone();
    let start = Instant::now();
    talk.wire.request(json!({"type": "turn.cancel", "session_id": talk.session, "turn_id": turn}));
    let events = talk.wire.turn();
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(events.last().unwrap()["type"], "turn.cancelled");
    assert_eq!(of_type(&events, "tool.completed")[0]["error"], "cancelled");
    assert_gone(&talk.env);
}

#[test]
fn a_codex_that_is_killed_fails_its_call_at_once() {
    let mut talk = talk(FULL);
    at_work(&mut talk, STRAYS, &json!({}));
    strayed(&talk.env);
    talk.model.push(Reply::text("It is gone."));
    let start = Instant::now();
    leader(&talk.env).signal(Signal::KILL);
    let events = talk.wire.turn();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(events.last().unwrap()["type"], "turn.completed");
    let result = told(&talk.model);
    assert_eq!((&result["status"], &result["session"]), (&json!("failed"), &json!("codex-1")));
    let error = result["error"].as_str().unwrap();
    assert!(error.starts_with("Codex exited with signal: 9 before it finished its turn"), "{error}");
    assert_gone(&talk.env);
}

#[test]
fn a_killed_worker_takes_it_along_with_its_record_and_the_session_comes_back() {
    let mut talk = talk(FULL);
    at_work(&mut talk, STRAYS, &json!({}));
    strayed(&talk.env);
    talk.env.worker_of(&talk.session).kill();
    talk.env.gone_within(Duration::from_secs(1), TestEnv::children);
    let records = || fs::read_dir(talk.env.layout().delegations()).unwrap().count();
    eventually("its record is gone", Duration::from_secs(1), || records() == 0);
    let attached = Attached::to(&talk.env, &talk.session, 0);
    let ends: Vec<&Value> = attached.events.iter().filter(|event| is_terminal(event)).collect();
    assert_eq!((ends.len(), &ends[0]["code"]), (1, &json!("session_crashed")));
    eventually("no zombies", Duration::from_secs(2), || talk.env.zombies().is_empty());
}

#[test]
fn when_supervisor_and_worker_die_together_the_next_supervisor_ends_it() {
    let mut talk = talk(FULL);
    at_work(&mut talk, STRAYS, &json!({}));
    strayed(&talk.env);
    let env = &talk.env;
    let worker = env.worker_of(&talk.session);
    let supervisor = env.running("scvd").pop().unwrap();
    supervisor.signal(Signal::KILL);
    worker.kill();
    supervisor.kill();
    env.start();
    // Ready means that it has looked.
    assert_gone(env);
    let status: Value = serde_json::from_str(&env.scv(&["status", "--json"]).exits(0).stdout).unwrap();
    assert!(status["delegations"]["reaped"].as_u64().unwrap() > 0, "{status}");
}

#[test]
fn the_end_of_a_session_ends_it() {
    let mut talk = talk(FULL);
    at_work(&mut talk, STRAYS, &json!({}));
    strayed(&talk.env);
    talk.wire.request(json!({"type": "session.close", "session_id": talk.session}));
    talk.wire.until_closed();
    talk.env.gone_within(Duration::from_secs(3), TestEnv::children);
    assert_gone(&talk.env);
}

#[test]
fn a_server_on_standard_streams_that_was_killed_is_cleaned_up_after_by_the_next_one() {
    let (env, model) = installed(FULL);
    let mut wire = Wire::server(&env);
    wire.initialize(&[]);
    let session = wire.session(&env, &json!({"auto_approve": true}));
    codex_answers(&model, [shell(STRAYS)]);
    model.push(hand_over("work", &json!({})));
    wire.prompt(&session, "go");
    strayed(&env);
    let worker = env.running("scv-worker").pop().unwrap();
    wire.process().unwrap().signal(Signal::KILL);
    worker.signal(Signal::KILL);
    wire.until_closed();
    assert!(!env.children().is_empty(), "nobody is there who could end it");
    let mut next = Wire::server(&env);
    next.initialize(&[]);
    assert_gone(&env);
    drop((wire, next));
    env.finish();
}
