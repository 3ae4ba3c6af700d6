//! `scv approvals`: what waits in every session, and its answer from another terminal.

use scv_tests::fakes::model::{Model, Reply};
use scv_tests::{DEADLINE, TestEnv, Wire, eventually};
use serde_json::{Value, json};

fn running() -> (TestEnv, Model) {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    env.start();
    (env, model)
}

/// A session that asks whether it may touch `name`.
fn asking(env: &TestEnv, model: &Model, name: &str) -> (Wire, String, Value) {
    let mut wire = Wire::connect(env);
    wire.initialize(&["attach", "approvals"]);
    let session = wire.session(env, &json!({"on_disconnect": "keep"}));
    model.push(Reply::new().call("bash", &json!({"command": format!("touch {name}")})));
    wire.prompt(&session, "work");
    let asked = wire.until_type("approval.requested");
    // The list follows what clients are told.
    eventually("the list says so", DEADLINE, || env.session_entry(&session).unwrap()["approvals"] == 1);
    (wire, session, asked)
}

fn listed(env: &TestEnv) -> Vec<Value> {
    let listed = env.scv(&["approvals", "ls", "--json"]);
    serde_json::from_str(&listed.exits(0).stdout).unwrap()
}

fn id(asked: &Value) -> &str {
    asked["approval_id"].as_str().unwrap()
}

#[test]
fn what_waits_in_every_session_is_listed_and_answered_from_another_terminal() {
    let (env, model) = running();
    assert_eq!(listed(&env), Vec::<Value>::new());
    let (mut first, one, yes) = asking(&env, &model, "one");
    let (mut second, two, no) = asking(&env, &model, "two");
    model.answer(|_| Some(Reply::text("well")));
    let mut found = listed(&env);
    found.sort_by_key(|open| open["session_id"] != json!(one));
    for (open, session, asked) in [(&found[0], &one, &yes), (&found[1], &two, &no)] {
        assert_eq!(open["session_id"], json!(session), "{found:?}");
        for field in ["approval_id", "call_id", "name", "risk", "cwd", "summary"] {
            assert_eq!(open[field], asked[field], "{field}");
        }
    }
    let text = env.scv(&["approvals", "ls"]);
    assert!(text.exits(0).stdout.contains("touch one"), "{text:?}");

    let said = env.scv(&["approvals", "approve", id(&yes)]);
    assert!(said.exits(0).stdout.starts_with(&format!("approved {}: bash", id(&yes))), "{said:?}");
    env.scv(&["approvals", "deny", id(&no)]).exits(0);
    for (wire, approved) in [(&mut first, true), (&mut second, false)] {
        let resolved = wire.until_type("approval.resolved");
        assert_eq!((&resolved["approved"], &resolved["by"]), (&json!(approved), &json!("client")));
        assert_eq!(wire.turn().pop().unwrap()["type"], "turn.completed");
    }
    assert!(env.work().join("one").exists() && !env.work().join("two").exists());
    assert_eq!(listed(&env), Vec::<Value>::new());
    let late = env.scv(&["approvals", "deny", id(&yes)]);
    assert!(late.exits(1).stderr.contains("there is no open approval"), "{late:?}");
    drop((first, second));
    env.finish();
}

#[test]
fn looking_at_what_waits_does_not_close_a_session_nor_keep_it_from_running_out() {
    let model = Model::start_blocking();
    let env = TestEnv::new();
    env.configure(&model.url(), "[session]\nunattended_approval_seconds = 1");
    env.start();
    let (wire, session, _) = asking(&env, &model, "made");
    model.push(Reply::text("well"));
    drop(wire);
    let state = || env.session_entry(&session).unwrap()["state"].clone();
    eventually("it is denied although somebody looks all the time", DEADLINE, || {
        listed(&env);
        state() == "idle"
    });
    assert!(!env.work().join("made").exists());
    env.finish();
}

#[test]
fn a_command_that_a_session_runs_answers_nothing() {
    let (env, model) = running();
    let (mut wire, session, asked) = asking(&env, &model, "made");
    let mut inside = env.command("scv");
    inside.args(["approvals", "approve", id(&asked)]).env("SCV_SESSION", &session);
    let refused = scv_tests::Program::start(&mut inside).wait();
    assert!(refused.exits(2).stderr.contains("from inside a session"), "{refused:?}");
    model.push(Reply::text("well"));
    wire.resolve(&asked, false);
    wire.turn();
    drop(wire);
    env.finish();
}
