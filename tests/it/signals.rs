//! SIGINT, SIGTERM and SIGHUP on each of our programs, while a command runs that ignores them all:
//! each ends what it should, or keeps what it should, within a bound.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use scv_tests::env::binary_path;
use scv_tests::fakes::model::{Model, Reply};
use scv_tests::processes::Process;
use scv_tests::wire::is_terminal;
use scv_tests::{Attached, Program, TestEnv, Wire, eventually};
use serde_json::{Value, json};

/// SIGTERM, 2 s of grace, SIGKILL; the rest is for a loaded machine.
const BOUND: Duration = Duration::from_secs(5);

const STUBBORN: &str = "trap '' TERM INT HUP; setsid sleep 600 & (setsid sh -c \"trap '' TERM; sleep 601\" &); \
                        touch mark; while true; do sleep 1; done";

const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

fn with_model() -> (TestEnv, Model) {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    (env, model)
}

fn call(model: &Model) {
    model.push(Reply::new().call("bash", &json!({"command": STUBBORN})));
}

/// Starts a turn over `wire` that runs [`STUBBORN`].
#[track_caller]
fn busy(env: &TestEnv, model: &Model, wire: &mut Wire) -> String {
    call(model);
    let session = wire.session(env, &json!({"on_disconnect": "keep", "auto_approve": true}));
    wire.prompt(&session, "work");
    it_runs(env);
    session
}

#[track_caller]
fn it_runs(env: &TestEnv) {
    eventually("the command runs", scv_tests::DEADLINE, || env.work().join("mark").exists());
}

fn ends(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| is_terminal(event)).collect()
}

#[test]
fn an_interrupt_ends_supervisor_and_guard_with_everything() {
    for guarded in [false, true] {
        let (env, model) = with_model();
        let env = &env;
        let _ = if guarded { env.start_guarded() } else { env.start() };
        let mut wire = Wire::plain(env);
        busy(env, &model, &mut wire);
        let start = Instant::now();
        env.supervisor().as_ref().unwrap().signal(Signal::INT);
        env.supervisor_output().exits(0);
        env.gone_within(BOUND.saturating_sub(start.elapsed()), TestEnv::processes);
        let events = wire.until_closed();
        assert_eq!(ends(&events).len(), 1, "guarded {guarded}: {events:?}");
    }
}

#[test]
fn a_hang_up_of_no_terminal_ends_nothing() {
    let (env, model) = with_model();
    let mut command = env.command_at(Path::new("/usr/bin/setsid"));
    command.arg(binary_path("scvd")).arg("--scv-home").arg(env.layout().home());
    let scvd = Program::start(&mut command);
    scvd.stdout_until("the line `ready`", |text| text == "ready\n");
    let mut wire = Wire::plain(&env);
    let session = busy(&env, &model, &mut wire);
    scvd.signal(Signal::HUP);
    scvd.stderr_until("the configuration is read again", |text| text.contains("configuration"));
    assert_eq!(env.session_entry(&session).unwrap()["state"], "working");
    drop(wire);
    scvd.signal(Signal::INT);
    scvd.wait().exits(0);
    env.finish();
}

#[test]
fn a_supervisor_that_is_told_to_leave_leaves_the_workers() {
    for guarded in [false, true] {
        let (env, model) = with_model();
        if guarded {
            env.start_guarded()
        } else {
            env.start()
        };
        let mut wire = Wire::plain(&env);
        let session = busy(&env, &model, &mut wire);
        let children = env.children();
        env.supervisor().as_ref().unwrap().signal(Signal::TERM);
        env.supervisor_output().exits(0);
        wire.request(json!({"type": "session.pause", "session_id": session, "paused": true}));
        wire.until("the session answers", |event| event["paused"] == json!(true));
        env.start();
        assert_eq!(env.session_entry(&session).unwrap()["state"], "working");
        assert!(children.iter().filter(|child| child.name == "sleep" && child.args[1] != "1").all(Process::is_alive));
        drop(wire);
        env.finish();
    }
}

#[test]
fn a_worker_that_is_told_to_leave_ends_its_turn_and_says_so() {
    for signal in SIGNALS {
        let (env, model) = with_model();
        env.start();
        let mut wire = Wire::plain(&env);
        let session = busy(&env, &model, &mut wire);
        let worker = env.worker_of(&session);
        worker.signal(signal);
        let events = wire.until_closed();
        assert_eq!(ends(&events)[0]["type"], "turn.failed", "{signal:?}: {events:?}");
        assert!(worker.gone_within(BOUND), "{signal:?}");
        assert_eq!(env.children(), [], "{signal:?}");
        let attached = Attached::to(&env, &session, 0);
        assert_eq!(ends(&attached.events).len(), 1, "{signal:?}: {:?}", attached.events);
        drop(attached);
        env.finish();
    }
}

#[test]
fn a_session_over_standard_streams_ends_its_turn_and_says_so() {
    for signal in SIGNALS {
        for server in [Wire::worker, Wire::server] {
            let (env, model) = with_model();
            let mut wire = server(&env);
            wire.initialize(&[]);
            busy(&env, &model, &mut wire);
            let process = wire.process().unwrap();
            process.signal(signal);
            let events = wire.until_closed();
            assert_eq!(ends(&events).len(), 1, "{signal:?}: {events:?}");
            assert!(process.gone_within(BOUND), "{process}");
            env.gone_within(Duration::from_secs(1), TestEnv::processes);
            drop(wire);
            env.finish();
        }
    }
}

#[test]
fn a_server_that_is_killed_takes_its_worker_and_all_of_it() {
    let (env, model) = with_model();
    let mut wire = Wire::server(&env);
    wire.initialize(&[]);
    busy(&env, &model, &mut wire);
    wire.process().unwrap().signal(Signal::KILL);
    env.gone_within(BOUND, TestEnv::processes);
    drop(wire);
    env.finish();
}

#[test]
fn the_end_of_its_input_ends_a_session_over_standard_streams() {
    for server in [Wire::worker, Wire::server] {
        let (env, model) = with_model();
        let mut wire = server(&env);
        wire.initialize(&[]);
        wire.session(&env, &json!({}));
        model.push(Reply::text("done"));
        wire.close_write();
        assert!(wire.process().unwrap().gone_within(BOUND));
        drop(wire);
        env.finish();
    }
}

#[test]
fn exec_that_is_told_to_leave_closes_its_session_and_leaves_nothing() {
    for signal in SIGNALS {
        let (env, model) = with_model();
        env.start();
        call(&model);
        let exec = env.scv_start(&["exec", "--yes", "work"]);
        it_runs(&env);
        let start = Instant::now();
        exec.signal(signal);
        let output = exec.wait();
        let expected = 128 + signal.as_raw();
        let ended = output.status.code() == Some(expected) || output.signal() == Some(signal.as_raw());
        assert!(ended, "{signal:?}: {output:?}");
        env.gone_within(BOUND.saturating_sub(start.elapsed()), TestEnv::children);
        env.finish();
    }
}
