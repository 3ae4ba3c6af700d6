//! `scv restart`: another supervisor takes over, and nobody but it notices.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::processes::Process;
use scv_tests::session::seq;
use scv_tests::{Attached, DEADLINE, Installed, TestEnv, Wire, eventually, wait};
use serde_json::{Value, json};

fn with_model() -> (TestEnv, Model) {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    (env, model)
}

/// The one supervisor that runs, once there is one only.
#[track_caller]
fn scvd(env: &TestEnv) -> Process {
    eventually("one supervisor serves", DEADLINE, || env.running("scvd").len() == 1 && env.connect().is_ok());
    // By what it says: a child of it that is about to become a worker looks the same for a moment.
    status(env)["pid"].as_i64().and_then(|pid| Process::of(pid.try_into().ok()?)).unwrap()
}

fn status(env: &TestEnv) -> Value {
    Wire::plain(env).control(&json!({"action": "status"}))
}

fn without_gap(events: &[Value]) -> Vec<u64> {
    let numbers: Vec<u64> = events.iter().filter_map(seq).collect();
    let expected: Vec<u64> = (numbers[0]..).take(numbers.len()).collect();
    assert_eq!(numbers, expected, "{events:?}");
    numbers
}

#[test]
fn a_turn_two_clients_and_a_command_go_on_over_a_restart() {
    let (env, model) = with_model();
    env.start_guarded();
    let before = scvd(&env);
    let mut one = Wire::connect(&env);
    one.initialize(&["attach", "approvals"]);
    let session = one.session(&env, &json!({"auto_approve": true, "on_disconnect": "keep"}));
    let mut two = Attached::to(&env, &session, 0).wire;
    let gate = Gate::new();
    let command = "touch began; while [ ! -e go ]; do sleep 0.05; done; echo went on";
    model.push(Reply::new().delta("a").delta("b").stall(&gate).delta("c").call("bash", &json!({"command": command})));
    model.push(Reply::text("done"));
    one.prompt(&session, "work");
    wait(gate.reached());
    let worker = env.worker_of(&session);

    env.scv(&["restart"]).exits(0);
    gate.release();
    eventually("the command runs", DEADLINE, || env.work().join("began").exists());
    let second = scvd(&env);
    env.scv(&["restart"]).exits(0);
    env.file("go", "");

    let told = one.collect("the end", |event| event["type"] == "turn.completed");
    without_gap(&told);
    let also = two.collect("the end", |event| event["type"] == "turn.completed");
    without_gap(&also);
    let last = wait(model.requests()).pop().unwrap();
    assert!(last.last_output().unwrap().contains("went on"), "{last:?}");
    let after = scvd(&env);
    assert!(before.pid != second.pid && second.pid != after.pid);
    assert_eq!(env.worker_of(&session).pid, worker.pid);
    // The next supervisor knows the worker as the first one did: its death is seen.
    env.worker_of(&session).signal(Signal::KILL);
    eventually("its death is seen", DEADLINE, || env.session_entry(&session).unwrap()["state"] == "hibernated");
    drop((one, two));
    env.finish();
}

#[test]
fn whoever_asks_is_answered_by_the_successor_on_the_same_connection() {
    let (env, _model) = with_model();
    env.start_guarded();
    let before = scvd(&env);
    let mut idle = Wire::connect(&env);
    idle.initialize(&["attach", "watch"]);
    let mut watcher = Wire::connect(&env);
    watcher.initialize(&["watch"]);
    watcher.request(json!({"type": "daemon.control", "command": {"action": "watch"}}));
    let snapshot = watcher.event();
    let mut half = Wire::connect(&env);
    half.send_bytes(b"{\"type\":\"initialize\",\"request_id\":\"i\",").unwrap();
    let mut asking = Wire::plain(&env);
    let answered = asking.control(&json!({"action": "restart"}));
    assert_ne!(answered["pid"], before.pid);
    assert!(answered["last_stop"].as_str().unwrap().contains("replaced by its successor"), "{answered}");
    // Each goes on in the middle of what it did.
    assert_eq!(asking.control(&json!({"action": "status"}))["pid"], answered["pid"]);
    half.send_bytes(b"\"protocol_version\":3,\"client\":{\"name\":\"t\",\"version\":\"1\"}}\n").unwrap();
    assert_eq!(half.event()["type"], "initialized");
    let again = watcher.event();
    assert_eq!(
        (&again["type"], &again["request_id"]),
        (&snapshot["type"], &snapshot["request_id"]),
        "a watcher begins anew with a snapshot: {again}"
    );
    let session = idle.session(&env, &json!({}));
    let changed = watcher.event();
    assert_eq!(changed["set"][0]["id"], json!(session), "{changed}");
    drop((idle, watcher, half, asking));
    env.finish();
}

#[test]
fn a_new_program_that_does_not_come_up_leaves_the_old_one_in_charge_and_says_why() {
    let (env, model) = with_model();
    let installed = Installed::of(&env);
    installed.start_guarded();
    let before = scvd(&env);
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
    let children = |env: &TestEnv| env.children().len();
    for (script, why) in [
        ("#!/bin/sh\nexit 1\n", "it ended at once (exit status: 1)"),
        ("#!/bin/sh\necho 'error: cannot do this'\nexit 2\n", "did not take over: cannot do this"),
        ("#!/bin/sh\necho hello there\n", "it wrote \"hello there\""),
        ("#!/bin/sh\necho garbage >&0\nsleep 600\n", "what it said is no message"),
        ("#!/bin/sh\nsleep 600 & sleep 601\n", "it was not up within 5 s"),
        ("no program at all", "cannot start it"),
    ] {
        installed.put("scvd", script.as_bytes());
        let told = installed.scv(&["restart"]);
        assert_eq!(told.code(), 1, "{script}: {told:?}");
        assert!(told.stderr.contains(why) && told.stderr.contains("stays in charge"), "{script}: {told:?}");
        eventually("nothing of it is left", DEADLINE, || children(&env) == 0);
        assert_eq!(scvd(&env).pid, before.pid);
        model.push(Reply::text("still here"));
        wire.prompt(&session, "go");
        wire.turn();
        // It starts sessions as before.
        Wire::plain(&env).session(&env, &json!({}));
    }
    installed.mend("scvd");
    installed.scv(&["restart"]).exits(0);
    assert_ne!(scvd(&env).pid, before.pid);
    drop(wire);
    env.finish();
}

#[test]
fn a_configuration_that_cannot_be_read_does_not_end_the_supervisor_that_has_a_good_one() {
    let (env, _model) = with_model();
    env.start_guarded();
    let before = scvd(&env);
    env.write_config("[supervisor]\nmax_sessions = \"many\"\n");
    let told = env.scv(&["restart"]);
    assert_eq!(told.code(), 1);
    assert!(told.stderr.contains("supervisor.max_sessions"), "{told:?}");
    assert_eq!(scvd(&env).pid, before.pid);
    env.finish();
}

#[test]
fn many_restarts_leave_no_descriptor_no_process_and_no_bundle() {
    let (env, _model) = with_model();
    env.start_guarded();
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
    let mut waiting = Wire::plain(&env);
    let open = |env: &TestEnv| {
        let supervisor = scvd(env);
        // A spare that is on its way up has a pipe more.
        eventually("a spare is there", DEADLINE, || env.running("scv-worker").len() == 2);
        fs::read_dir(format!("/proc/{}/fd", supervisor.pid)).unwrap().count()
    };
    env.scv(&["restart"]).exits(0);
    let first = open(&env);
    for _ in 0..20 {
        waiting.control(&json!({"action": "restart"}));
    }
    eventually("as many descriptors as before", DEADLINE, || open(&env) <= first);
    eventually("every end is collected", DEADLINE, || env.zombies().is_empty());
    assert_eq!(fs::read_dir(env.layout().workers()).unwrap().count(), 2);
    assert_eq!(status(&env)["sessions"]["live"], 1);
    assert!(env.session_entry(&session).is_some());
    drop((wire, waiting));
    env.finish();
}

#[test]
fn clients_that_connect_while_supervisors_are_replaced_are_all_served() {
    let (env, _model) = with_model();
    env.start_guarded();
    let env = Arc::new(env);
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let (env, over) = (env.clone(), over.clone());
            std::thread::spawn(move || {
                let mut served = 0;
                while !over.load(Ordering::SeqCst) {
                    let mut wire = Wire::plain(&env);
                    wire.control(&json!({"action": "status"}));
                    if served % 4 == 0 {
                        wire.session(&env, &json!({}));
                    }
                    served += 1;
                }
                served
            })
        })
        .collect();
    let mut asking = Wire::plain(&env);
    for _ in 0..10 {
        asking.control(&json!({"action": "restart"}));
    }
    over.store(true, Ordering::SeqCst);
    let served: Vec<usize> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    assert!(served.iter().all(|served| *served > 0), "{served:?}");
    drop(asking);
    Arc::into_inner(env).unwrap().finish();
}

#[test]
fn the_guard_watches_the_successor_and_becomes_its_program() {
    let (env, _model) = with_model();
    let installed = Installed::of(&env);
    installed.start_guarded();
    let guard = env.supervisor().as_ref().unwrap().pid();
    let first = scvd(&env);
    // The same program in another file.
    installed.mend("scvd");
    installed.scv(&["restart"]).exits(0);
    let second = scvd(&env);
    assert_ne!(first.pid, second.pid);
    let program = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    eventually("the guard is of the new file", DEADLINE, || program(guard) == installed.path("scvd"));
    second.signal(Signal::KILL);
    eventually("the guard starts another one", DEADLINE, || {
        env.running("scvd").first().is_some_and(|scvd| scvd.pid != second.pid)
    });
    let third = scvd(&env);
    assert_eq!(program(third.pid), installed.path("scvd"));
    env.scv(&["stop"]).exits(0);
    env.supervisor_output().exits(0);
    env.finish();
}

#[test]
fn a_supervisor_whose_guard_is_gone_goes_on_and_says_so() {
    let (env, _model) = with_model();
    env.start_guarded();
    let wire = Wire::plain(&env);
    assert_eq!(status(&env)["unguarded"], Value::Null);
    let guard = env.supervisor().as_ref().unwrap().pid();
    Process::of(guard).unwrap().signal(Signal::KILL);
    eventually("the guard is gone", DEADLINE, || status(&env)["unguarded"] == true);
    let told = env.scv(&["status"]);
    assert!(told.stdout.contains("guard"), "{told:?}");
    drop(wire);
    env.scv(&["stop"]).exits(0);
    env.finish();
}

#[test]
fn an_interrupt_of_a_guard_that_waits_ends_the_workers_too() {
    let (env, _model) = with_model();
    let installed = Installed::of(&env);
    installed.start_guarded();
    let mut wire = Wire::plain(&env);
    wire.session(&env, &json!({"on_disconnect": "keep"}));
    let guard = env.supervisor().as_ref().unwrap().pid();
    // Until the guard waits long enough to be caught in it.
    for _ in 0..4 {
        let supervisor = scvd(&env);
        supervisor.signal(Signal::KILL);
        eventually("it is gone", DEADLINE, || !env.running("scvd").iter().any(|one| one.pid == supervisor.pid));
    }
    assert!(!env.running("scv-worker").is_empty());
    Process::of(guard).unwrap().signal(Signal::INT);
    env.supervisor_output().exits(0);
    env.gone_within(Duration::from_secs(5), TestEnv::processes);
    drop(wire);
    env.finish();
}

#[test]
fn a_session_may_restart_its_own_supervisor() {
    let (env, model) = with_model();
    let path = scv_tests::env::binary_path("scv");
    env.start_guarded();
    let before = scvd(&env);
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({"auto_approve": true}));
    model.push(Reply::new().call("bash", &json!({"command": format!("{} restart", path.display())})));
    model.push(Reply::text("restarted"));
    wire.prompt(&session, "restart yourself");
    assert_eq!(wire.turn().last().unwrap()["type"], "turn.completed");
    let last = wait(model.requests()).pop().unwrap();
    assert!(last.last_output().unwrap().contains("took over from pid"), "{last:?}");
    assert_ne!(scvd(&env).pid, before.pid);
    drop(wire);
    env.finish();
}

#[test]
fn without_a_supervisor_restart_starts_one_also_after_a_stop() {
    let (env, _model) = with_model();
    env.scv(&["restart"]).exits(0);
    scvd(&env);
    env.scv(&["stop"]).exits(0);
    env.scv(&["restart"]).exits(0);
    scvd(&env);
    env.scv(&["stop"]).exits(0);
    env.finish();
}
