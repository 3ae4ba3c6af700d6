//! How a worker ended is told by a supervisor that is not its parent, too.

use rustix::process::Signal;
use scv_tests::{DEADLINE, TestEnv, Wire, eventually};
use serde_json::{Value, json};

/// Whether this kernel tells others than the parent how a process ended.
fn kernel_tells() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let numbers: Vec<u32> = release.split(['.', '-']).map_while(|part| part.trim().parse().ok()).collect();
    numbers >= vec![6, 15]
}

/// An instance whose only session has a worker that its supervisor did not start; a watcher.
fn adopted() -> (TestEnv, String, Wire) {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start_guarded();
    let mut wire = Wire::connect(&env);
    wire.initialize(&["attach"]);
    let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
    let first = env.running("scvd").pop().unwrap();
    first.kill();
    eventually("another supervisor answers", DEADLINE, || {
        env.running("scvd").iter().any(|scvd| scvd.pid != first.pid) && env.connect().is_ok()
    });
    let mut watcher = Wire::connect(&env);
    watcher.initialize(&["watch"]);
    let snapshot = watcher.ask(json!({"type": "daemon.control", "command": {"action": "watch"}}));
    assert_eq!(snapshot["sessions"][0]["id"], session.as_str(), "{snapshot}");
    (env, session, watcher)
}

fn crash(watcher: &mut Wire) -> Value {
    let mut event = watcher.until("the crash", |event| event["type"] == "session.crashed");
    event.as_object_mut().unwrap().retain(|name, _| ["session_id", "signal", "exit_code", "reason"].contains(&&**name));
    event
}

#[test]
fn the_signal_that_killed_an_adopted_worker_is_told() {
    for signal in [Signal::KILL, Signal::ABORT] {
        let (env, session, mut watcher) = adopted();
        env.worker_of(&session).signal(signal);
        let (number, how) = if kernel_tells() {
            (json!(signal.as_raw()), format!("signal: {}", signal.as_raw()))
        } else {
            (Value::Null, "exit status unknown".to_owned())
        };
        let mut expected = json!({"session_id": session, "reason": format!("its worker died ({how})")});
        if !number.is_null() {
            expected["signal"] = number;
        }
        let mut crash = crash(&mut watcher);
        crash.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        assert_eq!(crash, expected);
        drop(watcher);
        env.finish();
    }
}

#[test]
fn an_adopted_worker_that_is_told_to_end_leaves_no_crash() {
    let (env, session, mut watcher) = adopted();
    env.worker_of(&session).signal(Signal::TERM);
    let told = watcher.collect("that it is gone", |event| event["gone"][0] == session.as_str());
    assert!(told.iter().all(|event| event["type"] != "session.crashed"), "{told:?}");
    let status = Wire::plain(&env).control(&json!({"action": "status"}));
    assert!(status["workers"].as_array().unwrap().iter().all(|worker| worker["recent_deaths"].is_null()), "{status}");
    drop(watcher);
    env.finish();
}

#[test]
fn a_worker_that_ends_while_no_supervisor_runs_leaves_its_record() {
    let (env, session, watcher) = adopted();
    let guard = env.processes().into_iter().find(|process| process.args.iter().any(|arg| arg == "--guard")).unwrap();
    let scvd = env.running("scvd").pop().unwrap();
    let worker = env.worker_of(&session);
    // So that nobody starts another one meanwhile.
    guard.signal(Signal::STOP);
    scvd.kill();
    worker.signal(Signal::TERM);
    let records = || {
        let bundles = std::fs::read_dir(env.layout().workers()).unwrap().flatten();
        bundles.filter_map(|bundle| std::fs::read_to_string(bundle.path().join("exit.json")).ok()).collect::<Vec<_>>()
    };
    eventually("its record", DEADLINE, || !records().is_empty());
    let record: Value = serde_json::from_str(&records()[0]).unwrap();
    assert_eq!(record, json!({"code": 0, "why": "stopped"}));
    guard.signal(Signal::CONT);
    eventually("another supervisor answers", DEADLINE, || env.connect().is_ok());
    Wire::plain(&env).control(&json!({"action": "status"}));
    assert_eq!(records(), Vec::<String>::new());
    drop(watcher);
    env.finish();
}
