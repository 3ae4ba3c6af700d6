//! `scv sessions attach` and `log`.

use rustix::process::Signal;
use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::terminal::Terminal;
use scv_tests::{DEADLINE, TestEnv, Wire, eventually};
use serde_json::json;

fn kept(env: &TestEnv) -> (Wire, String) {
    let mut wire = Wire::connect(env);
    wire.initialize(&["attach", "approvals"]);
    let session = wire.session(env, &json!({"on_disconnect": "keep"}));
    (wire, session)
}

fn clients(env: &TestEnv, session: &str) -> u64 {
    env.session_entry(session).unwrap()["clients"].as_u64().unwrap()
}

#[test]
fn a_second_client_sees_the_newest_turn_then_what_happens_and_the_session_outlives_it() {
    let model = Model::start_blocking();
    let gate = Gate::new();
    let held = gate.clone();
    model.script([
        Reply::text("An old answer."),
        Reply::text("A newer answer."),
        Reply::new().deltas(["Live ", "text."]).stall(&held),
    ]);
    let env = TestEnv::with_model(&model.url());
    env.start();
    let (mut wire, session) = kept(&env);
    for prompt in ["one", "two"] {
        wire.prompt(&session, prompt);
        wire.turn();
    }
    let attached = env.scv_start(&["sessions", "attach", &session[..13]]);
    attached.stdout_until("the newest turn", |text| text.contains("newer"));
    wire.prompt(&session, "three");
    attached.stdout_until("what happens", |text| text.contains("Live text."));
    gate.release();
    wire.turn();
    attached.stderr_until("the end of the turn", |text| text.matches("completed").count() == 2);
    attached.process().unwrap().signal(Signal::INT);
    let done = attached.wait();
    done.exits(0);
    assert_eq!(done.stdout, "A newer answer.\nLive text.\n");
    assert!(done.stderr.contains("the session goes on"), "{}", done.stderr);
    eventually("it has left", DEADLINE, || clients(&env, &session) == 1);
    drop(wire);
    env.finish();
}

#[test]
fn an_approval_is_answered_on_whichever_client_is_first() {
    let model = Model::start_blocking();
    let call = json!({"command": "echo ran"}).to_string();
    model.script([Reply::new().call_as("c-1", "bash", &call), Reply::text("Done.")]);
    let env = TestEnv::with_model(&model.url());
    env.start();
    let (mut wire, session) = kept(&env);
    let terminal = Terminal::scv(&env, &["sessions", "attach", &session]);
    eventually("it is attached", DEADLINE, || clients(&env, &session) == 2);
    wire.prompt(&session, "go");
    let asked = wire.until_type("approval.requested");
    terminal.shows("approval needed");
    wire.resolve(&asked, true);
    terminal.shows("approved by");
    let resolved = wire.until_type("turn.completed");
    assert_eq!(resolved["type"], "turn.completed");
    drop((terminal, wire));
    env.finish();
}

#[test]
fn the_log_tells_of_deaths_without_a_supervisor() {
    let model = Model::start_blocking();
    let gate = Gate::new();
    model.script([Reply::text("Blue."), Reply::new().deltas(["So far"]).stall(&gate)]);
    let env = TestEnv::with_model(&model.url());
    env.start();
    let (mut wire, session) = kept(&env);
    wire.prompt(&session, "Which colour?");
    wire.turn();
    wire.prompt(&session, "And now?");
    wire.until_type("assistant.delta");
    env.worker_of(&session).signal(Signal::KILL);
    wire.until_closed();
    eventually("it is back", DEADLINE, || {
        let log = std::fs::read_to_string(env.layout().sessions().join(&session).join("journal.jsonl")).unwrap();
        log.contains("session_crashed")
    });
    env.scv(&["stop"]).exits(0);
    let log = env.scv(&["sessions", "log", &session]);
    log.exits(0);
    let order = ["scv-tests: Which colour?", "Blue.", "turn completed", "And now?", "turn interrupted"];
    let at: Vec<_> =
        order.iter().map(|text| log.stdout.find(text).unwrap_or_else(|| panic!("{text}: {log:?}"))).collect();
    assert!(at.is_sorted(), "{}", log.stdout);
    let entries = env.scv(&["sessions", "log", "--json", &session]).json_lines();
    assert_eq!(entries[0]["prompt"], "Which colour?");
    assert!(entries.iter().any(|entry| entry["type"] == "turn.failed" && entry["code"] == "session_crashed"));
    let unknown = env.scv(&["sessions", "log", "ffffffff"]);
    assert!(unknown.exits(1).stderr.contains("there is no session ffffffff"), "{unknown:?}");
    assert!(env.running("scvd").is_empty(), "a log has started a supervisor");
    env.finish();
}
