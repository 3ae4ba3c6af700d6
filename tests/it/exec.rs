//! `scv exec`: what it exits with, and how it leaves, where no model answers.

use std::time::Duration;

use rustix::process::Signal;
use scv_tests::{TestEnv, Wire};
use serde_json::json;

/// Nobody listens there: the port is of a service that no machine of ours runs.
const NOBODY: &str = "http://127.0.0.1:9/v1";

#[test]
fn no_prompt_is_a_usage_error() {
    let env = TestEnv::with_model(NOBODY);
    env.scv(&["exec"]).exits(2);
    env.scv(&["exec", "--no-such-flag", "hello"]).exits(2);
    env.scv(&["no-such-command"]).exits(2);
    env.finish();
}

#[test]
fn a_directory_that_is_not_there_is_a_usage_error() {
    let env = TestEnv::with_model(NOBODY);
    let output = env.scv(&["exec", "--cwd", "/no/such/directory", "hello"]);
    output.exits(2);
    assert!(output.stderr.contains("/no/such/directory"), "{output:?}");
    env.finish();
}

#[test]
fn a_session_that_is_not_there_is_said() {
    let env = TestEnv::with_model(NOBODY);
    let output = env.scv(&["exec", "--session", "0199c0de-0000-7000-8000-000000000001", "hello"]);
    output.exits(2);
    assert!(output.stderr.contains("0199c0de-0000-7000-8000-000000000001"), "{output:?}");
    env.finish();
}

#[test]
fn a_provider_that_nobody_serves_fails_the_turn() {
    let env = TestEnv::new();
    env.configure(NOBODY, "[provider_limits]\nmax_retries = 0");
    let output = env.scv(&["exec", "hello"]);
    output.exits(1);
    assert!(output.stderr.contains("127.0.0.1:9"), "it names whom it could not reach: {output:?}");
    assert!(!output.stderr.contains("sk-test"), "{output:?}");
    assert_eq!(output.stdout, "");
    env.finish();
}

#[test]
fn the_failed_turn_is_the_last_event_of_json_output() {
    let env = TestEnv::new();
    env.configure(NOBODY, "[provider_limits]\nmax_retries = 0");
    let output = env.scv(&["exec", "--json", "hello"]);
    output.exits(1);
    let events = output.json_lines();
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["code"]), (&json!("turn.failed"), &json!("provider_error")));
    env.finish();
}

#[test]
fn it_starts_a_supervisor_where_none_runs_and_the_next_one_finds_it() {
    let env = TestEnv::new();
    env.configure(NOBODY, "[provider_limits]\nmax_retries = 0");
    env.scv(&["exec", "hello"]).exits(1);
    let first = env.running("scvd");
    assert_eq!(first.len(), 1, "one supervisor: {first:?}");
    env.scv(&["exec", "hello"]).exits(1);
    assert_eq!(env.running("scvd"), first);
    env.finish();
}

#[test]
fn clients_started_at_once_share_one_supervisor() {
    let env = TestEnv::new();
    env.configure(NOBODY, "[provider_limits]\nmax_retries = 0");
    let clients: Vec<_> = (0..4).map(|n| env.scv_start(&["exec", &format!("hello {n}")])).collect();
    for client in clients {
        client.wait().exits(1);
    }
    assert_eq!(env.running("scvd").len(), 1);
    env.finish();
}

#[test]
fn a_closed_session_leaves_no_process_and_no_zombie() {
    let env = TestEnv::new();
    env.configure(NOBODY, "[provider_limits]\nmax_retries = 0");
    env.start();
    for _ in 0..3 {
        env.scv(&["exec", "hello"]).exits(1);
    }
    env.gone_within(Duration::from_secs(3), TestEnv::children);
    let spare_only = |env: &TestEnv| {
        let mut workers = env.running("scv-worker");
        workers.sort_by_key(|process| process.start);
        workers.into_iter().rev().skip(1).collect()
    };
    env.gone_within(Duration::from_secs(3), spare_only);
    assert_eq!(env.zombies(), []);
    env.finish();
}

#[test]
fn inside_a_run_no_client_starts_a_supervisor() {
    let env = TestEnv::with_model(NOBODY).var("SCV_DELEGATION_DEPTH", "1");
    env.scv(&["exec", "hello"]).exits(1);
    for verb in ["run", "start", "stop", "restart"] {
        let refused = env.scv(&[verb]);
        assert!(refused.status.code().is_some_and(|code| code == 1 || code == 2), "{verb}: {refused:?}");
    }
    assert!(env.running("scvd").is_empty());
    env.finish();
}

#[test]
fn a_foreground_supervisor_ends_by_a_signal() {
    for signal in [Signal::INT, Signal::TERM] {
        let env = TestEnv::with_model(NOBODY);
        let run = env.scv_start(&["run"]);
        scv_tests::eventually("it listens", Duration::from_secs(10), || env.connect().is_ok());
        Wire::plain(&env).control(&json!({"action": "status"}));
        run.signal(signal);
        run.wait_within(Duration::from_secs(5));
        env.finish();
    }
}

#[test]
fn status_tells_whether_something_runs() {
    let env = TestEnv::with_model(NOBODY);
    let stopped = env.scv(&["status"]);
    assert!(stopped.status.code().is_some_and(|code| code != 0), "nothing runs: {stopped:?}");
    assert!(env.running("scvd").is_empty(), "status starts nothing");
    env.start();
    env.scv(&["status"]).exits(0);
    let json = env.scv(&["status", "--json"]);
    json.exits(0);
    let status: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(status["pid"], json!(env.running("scvd")[0].pid));
    env.finish();
}
