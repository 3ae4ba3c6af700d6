//! `scv exec` whose connection ends before its turn does (field reports U5, C1).

use rustix::process::Signal;
use scv_tests::cutting::Cutting;
use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::{TestEnv, Wire, eventually};
use serde_json::json;

const PIECES: usize = 60;

fn answer() -> Vec<String> {
    (0..PIECES).map(|piece| format!("piece {piece}, ")).collect()
}

fn story() -> Reply {
    let pieces = answer();
    Reply::new().deltas(pieces.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_connection_that_is_cut_anywhere_costs_no_text_and_runs_nothing_twice() {
    let model = Model::start_blocking();
    model.answer(|request| {
        let outputs = request.input().iter().filter(|item| item["type"] == "function_call_output").count();
        let call = json!({"command": "echo ran >> ledger"}).to_string();
        Some(if outputs == 0 { story().call_as("c-1", "bash", &call) } else { Reply::text("The end.") })
    });
    let env = TestEnv::with_model(&model.url());
    env.start();
    let whole = format!("{}\nThe end.\n", answer().concat());
    // From the first byte of the handshake to the last of the turn; some 14 KiB in all.
    for (round, first) in (1..13_500).step_by(541).enumerate() {
        let cutting = Cutting::before(&env, &[first, 1 + first * 7 % 4_000, 2_000]);
        let home = cutting.home();
        // One that outlives its last client: where the connection of `exec`'s own session ends and
        // its worker lives, somebody left.
        let mut wire = Wire::plain(&env);
        let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
        drop(wire);
        let before = scv_tests::wait(model.requests()).len();
        let done = env.scv(&["--scv-home", home.to_str().unwrap(), "exec", "--yes", "--session", &session, "tell"]);
        done.exits(0);
        assert_eq!(done.stdout, whole, "cut after {first} bytes");
        assert_eq!(scv_tests::wait(model.requests()).len() - before, 2, "cut after {first} bytes");
        let ledger = std::fs::read_to_string(env.work().join("ledger")).unwrap();
        assert_eq!(ledger.lines().count(), round + 1, "cut after {first} bytes");
        assert!(cutting.cuts() > 0, "nothing was cut after {first} bytes");
    }
    env.finish();
}

#[test]
fn a_worker_that_dies_in_the_middle_of_a_turn_is_told_with_what_is_kept() {
    let model = Model::start_blocking();
    let gate = Gate::new();
    model.answer(move |_| Some(Reply::new().deltas(vec!["So far "]).stall(&gate.clone())));
    let env = TestEnv::with_model(&model.url());
    env.start_guarded();
    let exec = env.scv_start(&["exec", "go"]);
    exec.stdout_until("the text so far", |text| text.contains("So far"));
    for worker in env.running("scv-worker") {
        worker.signal(Signal::KILL);
    }
    let done = exec.wait();
    done.exits(1);
    assert_eq!(done.stdout, "So far \n");
    assert!(done.stderr.contains("scv exec --session"), "{done:?}");
    assert_eq!(scv_tests::wait(model.requests()).len(), 1, "the prompt was run again");
    env.finish();
}

#[test]
fn a_supervisor_that_is_killed_is_not_noticed() {
    let model = Model::start_blocking();
    let gate = Gate::new();
    let held = gate.clone();
    model.answer(move |_| Some(Reply::new().deltas(vec!["So far ", "so good."]).stall(&held.clone())));
    let env = TestEnv::with_model(&model.url());
    env.start_guarded();
    let exec = env.scv_start(&["exec", "go"]);
    exec.stdout_until("the text so far", |text| text.contains("good"));
    let [scvd] = &env.running("scvd")[..] else { panic!("one supervisor") };
    scvd.signal(Signal::KILL);
    eventually("another one serves", scv_tests::DEADLINE, || {
        env.running("scvd").iter().any(|now| now.pid != scvd.pid) && env.connect().is_ok()
    });
    gate.release();
    let done = exec.wait();
    assert_eq!(done.exits(0).stdout, "So far so good.\n");
    env.finish();
}
