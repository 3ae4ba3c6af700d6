//! `scv exec` with a model that answers: what goes where, when it leaves, and with which code.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::{TestEnv, wait};
use serde_json::{Value, json};

/// From the final event to the exit, promised.
const LEAVES_WITHIN: Duration = Duration::from_millis(100);

fn with_model() -> (TestEnv, Model) {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    (env, model)
}

fn bash(command: &str) -> Reply {
    Reply::new().call("bash", &json!({"command": command}))
}

#[test]
fn the_answer_goes_to_stdout_and_the_rest_to_stderr() {
    let (env, model) = with_model();
    env.file("note.txt", "the door is blue\n");
    model.push(Reply::new().call("read", &json!({"path": "note.txt"})));
    model.push(Reply::text("The door is blue."));
    let output = env.scv(&["exec", "What colour is the door?"]);
    output.exits(0);
    assert_eq!(output.stdout, "The door is blue.\n");
    assert!(output.stderr.contains("read"), "{output:?}");
    let asked = wait(model.next_request());
    assert_eq!(asked.prompt(), "What colour is the door?");
    assert!(wait(model.next_request()).last_output().unwrap().contains("the door is blue"));
    env.finish();
}

#[test]
fn the_answer_streams_as_it_arrives() {
    let (env, model) = with_model();
    let gate = Gate::new();
    model.push(Reply::new().delta("first ").stall(&gate).delta("second"));
    let exec = env.scv_start(&["exec", "hello"]);
    exec.stdout_until("the first piece", |text| text == "first ");
    gate.release();
    let output = exec.wait();
    assert_eq!(output.exits(0).stdout, "first second\n");
    env.finish();
}

#[test]
fn a_dash_reads_the_prompt_from_stdin() {
    let (env, model) = with_model();
    model.push(Reply::text("ok"));
    let mut exec = env.scv_start(&["exec", "-"]);
    exec.write(b"two\nlines\n").unwrap();
    exec.close_stdin();
    exec.wait().exits(0);
    assert_eq!(wait(model.next_request()).prompt().trim_end(), "two\nlines");
    env.finish();
}

#[test]
fn it_leaves_at_once_after_the_final_event() {
    let (env, model) = with_model();
    env.start();
    let gate = Gate::new();
    model.push(Reply::new().delta("done").stall(&gate));
    let exec = env.scv_start(&["exec", "--json", "hello"]);
    wait(gate.reached());
    gate.release();
    exec.stdout_until("the final event", |text| text.contains("turn.completed"));
    let last = Instant::now();
    exec.wait().exits(0);
    // The margin is for a loaded machine; the benchmark measures the bound itself.
    assert!(last.elapsed() < LEAVES_WITHIN + Duration::from_millis(400), "{:?}", last.elapsed());
    env.finish();
}

#[test]
fn json_is_the_events_of_the_session_one_a_line() {
    let (env, model) = with_model();
    model.push(Reply::text("hello"));
    let output = env.scv(&["exec", "--json", "hi"]);
    output.exits(0);
    let kinds: Vec<String> =
        output.json_lines().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    for kind in ["session.started", "turn.started", "assistant.completed", "turn.completed"] {
        assert_eq!(kinds.iter().filter(|seen| *seen == kind).count(), 1, "{kind}: {kinds:?}");
    }
    assert_eq!(kinds.last().unwrap(), "turn.completed");
    env.finish();
}

#[test]
fn without_a_terminal_a_risky_call_is_denied_and_said() {
    let (env, model) = with_model();
    model.push(bash("touch made"));
    model.push(Reply::text("I was not allowed to."));
    let output = env.scv(&["exec", "make a file"]);
    output.exits(3);
    assert!(output.stderr.contains("--yes"), "it says what to do: {output:?}");
    assert!(!env.work().join("made").exists());
    env.finish();
}

#[test]
fn yes_approves() {
    let (env, model) = with_model();
    model.push(bash("touch made"));
    model.push(Reply::text("Made."));
    let output = env.scv(&["exec", "--yes", "make a file"]);
    assert_eq!(output.exits(0).stdout, "Made.\n");
    assert!(env.work().join("made").exists());
    env.finish();
}

#[test]
fn a_provider_that_refuses_fails_the_turn_without_its_words() {
    for (status, code) in [("401 Unauthorized", "invalid_api_key"), ("404 Not Found", "model_not_found")] {
        let (env, model) = with_model();
        model.push(Reply::error(status, code, "org-1234567890 key sk-test-0123456789abcdef is wrong"));
        let output = env.scv(&["exec", "hello"]);
        output.exits(1);
        assert!(output.stderr.contains(&status[..3]), "{output:?}");
        assert!(!output.stderr.contains("sk-test"), "{output:?}");
        env.finish();
    }
}

#[test]
fn an_interrupt_cancels_the_turn_and_everything_it_runs() {
    let (env, model) = with_model();
    env.start();
    model.push(bash("echo started > mark; sleep 600 & setsid sleep 601 & wait"));
    let exec = env.scv_start(&["exec", "--yes", "wait"]);
    scv_tests::eventually("the command runs", scv_tests::DEADLINE, || env.work().join("mark").exists());
    let start = Instant::now();
    exec.signal(Signal::INT);
    exec.wait().exits(130);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    env.gone_within(Duration::from_secs(3), TestEnv::children);
    env.finish();
}

#[test]
fn an_interrupt_ends_a_model_that_stalls() {
    let (env, model) = with_model();
    let gate = Gate::new();
    model.push(Reply::new().delta("thinking").stall(&gate));
    let exec = env.scv_start(&["exec", "hello"]);
    exec.stdout_until("the first piece", |text| text.contains("thinking"));
    exec.signal(Signal::INT);
    exec.wait().exits(130);
    wait(gate.left());
    env.finish();
}

#[test]
fn a_killed_client_closes_its_session_and_leaves_nothing() {
    let (env, model) = with_model();
    env.start();
    model.push(bash("echo started > mark; setsid sleep 600"));
    let exec = env.scv_start(&["exec", "--yes", "wait"]);
    scv_tests::eventually("the command runs", scv_tests::DEADLINE, || env.work().join("mark").exists());
    exec.signal(Signal::KILL);
    drop(exec.wait());
    env.gone_within(Duration::from_secs(4), TestEnv::children);
    scv_tests::eventually("no zombie is left", Duration::from_secs(1), || env.zombies().is_empty());
    env.finish();
}

#[test]
fn a_session_goes_on_by_its_id() {
    let (env, model) = with_model();
    model.push(Reply::text("one"));
    let first = env.scv(&["exec", "--json", "first"]);
    let events = first.exits(0).json_lines();
    let started = events.iter().find(|event| event["type"] == "session.started").unwrap();
    let session = started["session_id"].as_str().unwrap().to_owned();
    model.push(Reply::text("two"));
    env.scv(&["exec", "--session", &session, "second"]).exits(0);
    let asked: Vec<Value> = wait(model.requests()).last().unwrap().input().to_vec();
    let text = Value::from(asked).to_string();
    for said in ["first", "one", "second"] {
        assert!(text.contains(said), "{said} is part of the conversation: {text}");
    }
    env.finish();
}
