//! Workers that are replaced under their clients, each when its session is idle.

use std::time::Duration;

use rustix::process::Signal;
use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::session::seq;
use scv_tests::wire::is_terminal;
use scv_tests::{Attached, DEADLINE, TestEnv, Wire, eventually, wait};
use serde_json::{Value, json};

fn running() -> (TestEnv, Model) {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    env.start_guarded();
    (env, model)
}

fn keep() -> Value {
    json!({"on_disconnect": "keep", "auto_approve": true})
}

/// Waits until `session` has another worker than `before`, which is gone.
#[track_caller]
fn renewed(env: &TestEnv, session: &str, before: i32) -> i32 {
    let now = || env.session_entry(session).and_then(|entry| entry["worker_pid"].as_i64()).unwrap_or(0);
    eventually("another worker has it", DEADLINE, || now() != 0 && now() != i64::from(before));
    eventually("the old one is gone", DEADLINE, || !env.running("scv-worker").iter().any(|w| w.pid == before));
    env.worker_of(session).pid
}

#[test]
fn clients_of_an_idle_session_do_not_notice_that_its_worker_is_renewed() {
    let (env, model) = running();
    let mut one = Wire::connect(&env);
    one.initialize(&["attach", "approvals"]);
    let session = one.session(&env, &keep());
    let mut two = Attached::to(&env, &session, 0).wire;
    let mut plain = Wire::plain(&env);
    plain.ask(json!({"type": "session.start", "session_id": session, "cwd": env.work(), "on_disconnect": "keep"}));
    model.push(Reply::new().delta("a").delta("b").delta("c"));
    let first = one.prompt(&session, "first");
    let mut told = vec![one.turn(), two.turn(), plain.turn()];
    // Half a message: its worker has read it and knows no more of it than that.
    let second =
        json!({"type": "turn.start", "request_id": "second", "session_id": session, "prompt": "second"}).to_string();
    let (head, tail) = second.split_at(30);
    one.send_bytes(head.as_bytes()).unwrap();

    let before = env.worker_of(&session).pid;
    env.scv(&["restart", "--when-idle"]).exits(0);
    let after = renewed(&env, &session, before);
    assert_ne!(before, after);

    model.push(Reply::new().delta("d").delta("e"));
    one.send_bytes(format!("{tail}\n").as_bytes()).unwrap();
    for (wire, told) in [&mut one, &mut two, &mut plain].into_iter().zip(&mut told) {
        let next = wire.turn();
        told.extend(next);
        let numbers: Vec<u64> = told.iter().filter_map(seq).collect();
        let expected: Vec<u64> = (numbers[0]..).take(numbers.len()).collect();
        assert_eq!(numbers, expected, "no gap and no repeat: {told:?}");
        assert_eq!(told.iter().filter(|event| is_terminal(event)).count(), 2);
    }
    // Its own id to the one that asked; to the others the number that it had before.
    let last = |told: &[Value]| told.last().unwrap()["request_id"].as_str().unwrap().to_owned();
    assert_eq!(last(&told[0]), "second");
    assert_eq!(last(&told[1]), "client:1:second");
    assert_eq!(told[1][0]["request_id"], format!("client:1:{first}"));
    // The next client has a number that nobody had.
    let mut three = Attached::to(&env, &session, 0).wire;
    model.push(Reply::text("third"));
    three.prompt(&session, "third");
    let seen = one.turn();
    assert!(seen[0]["request_id"].as_str().unwrap().starts_with("client:4:"), "{seen:?}");
    // The model was asked as if nothing had happened.
    let asked = wait(model.requests()).pop().unwrap().body.to_string();
    assert!(asked.contains("first") && asked.contains("second") && asked.contains("third"), "{asked}");
    drop((one, two, plain, three));
    env.finish();
}

#[test]
fn a_session_at_work_is_renewed_when_its_turn_is_over() {
    let (env, model) = running();
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &keep());
    let gate = Gate::new();
    model.push(Reply::new().delta("a").stall(&gate).delta("b"));
    wire.prompt(&session, "go");
    wait(gate.reached());
    let before = env.worker_of(&session).pid;
    env.scv(&["restart", "--when-idle"]).exits(0);
    // That it is left alone has no event.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(env.worker_of(&session).pid, before);
    gate.release();
    assert_eq!(wire.turn().last().unwrap()["type"], "turn.completed");
    renewed(&env, &session, before);
    model.push(Reply::text("on the new one"));
    wire.prompt(&session, "again");
    assert_eq!(wire.turn().last().unwrap()["type"], "turn.completed");
    drop(wire);
    env.finish();
}

#[test]
fn a_key_that_only_its_client_had_goes_with_the_session_and_is_in_no_file() {
    let model = Model::start_blocking();
    let env = TestEnv::new();
    env.write_config(&format!(
        "[provider]\nactive = \"fake\"\n\n[providers.fake]\nkind = \"openai-compatible\"\nwire_api = \"responses\"\n\
         model = \"fake-model\"\nbase_url = \"{}\"\napi_key_env = \"FAKE_KEY\"\n",
        model.url()
    ));
    env.start_guarded();
    let mut wire = Wire::plain(&env);
    let client = json!({"env": {"FAKE_KEY": "sk-only-the-client-0123", "PATH": "/usr/bin:/bin"}});
    let session = wire.session(&env, &json!({"on_disconnect": "keep", "client": client}));
    let before = env.worker_of(&session).pid;
    env.scv(&["restart", "--when-idle"]).exits(0);
    renewed(&env, &session, before);
    model.push(Reply::text("hello"));
    wire.prompt(&session, "go");
    assert_eq!(wire.turn().last().unwrap()["type"], "turn.completed");
    let asked = wait(model.requests()).pop().unwrap();
    assert_eq!(asked.header("authorization"), Some("Bearer sk-only-the-client-0123"));
    drop(wire);
    env.finish();
}

#[test]
fn a_worker_stays_whose_session_could_not_be_opened_again() {
    let (env, model) = running();
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &keep());
    let gate = Gate::new();
    model.push(Reply::new().stall(&gate).delta("b"));
    wire.prompt(&session, "go");
    wait(gate.reached());
    let before = env.worker_of(&session).pid;
    env.scv(&["restart", "--when-idle"]).exits(0);
    env.write_config("[provider]\nactive = 7\n");
    gate.release();
    wire.turn();
    model.push(Reply::text("still here"));
    wire.prompt(&session, "again");
    assert_eq!(wire.turn().last().unwrap()["type"], "turn.completed");
    assert_eq!(env.worker_of(&session).pid, before);
    drop(wire);
    env.finish();
}

#[test]
fn whoever_dies_during_a_renewal_the_session_is_there_with_all_it_has_told() {
    let (env, model) = running();
    let session = Wire::plain(&env).session(&env, &keep());
    for round in 0..6 {
        let mut attached = Attached::at_last(&env, &session, 0);
        let turns = attached.events.iter().filter(|event| event["type"] == "turn.completed").count();
        assert_eq!(turns, round, "{:?}", attached.events);
        model.push(Reply::text("hello"));
        attached.wire.prompt(&session, "go");
        assert_eq!(attached.wire.turn().last().unwrap()["type"], "turn.completed");
        env.scv(&["restart", "--when-idle"]).exits(0);
        // Whoever has it at this moment, or is about to get it.
        for worker in env.running("scv-worker").into_iter().skip(round % 2) {
            worker.signal(Signal::KILL);
        }
    }
    let attached = Attached::at_last(&env, &session, 0);
    let turns = attached.events.iter().filter(|event| event["type"] == "turn.completed").count();
    assert_eq!(turns, 6, "{:?}", attached.events);
    drop(attached);
    env.finish();
}
