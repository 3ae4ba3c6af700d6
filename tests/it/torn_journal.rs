//! A journal that a crash tore, a death in the middle of coming back, and a full disk: no record
//! is glued to a fragment, and what was not kept was not acknowledged.

use std::fs;
use std::path::{Path, PathBuf};

use scv_tests::env::binary_path;
use scv_tests::fakes::model::{Gate, Model, Reply, Request};
use scv_tests::wire::is_terminal;
use scv_tests::{Attached, Killer, Moment, TestEnv, Wire, wait};
use serde_json::{Value, json};

fn keep() -> Value {
    json!({"on_disconnect": "keep"})
}

/// The lines of a journal, each of which has to be whole.
#[track_caller]
fn records(journal: &Path) -> Vec<Value> {
    let text = fs::read_to_string(journal).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// A session whose turn waits for an approval, after one call that is done.
fn asking(env: &TestEnv, model: &Model) -> (Wire, String) {
    env.file("note.txt", "the door is blue\n");
    model.push(Reply::new().call_as("c-1", "read", r#"{"path": "note.txt"}"#));
    model.push(Reply::new().call_as("c-2", "bash", r#"{"command": "echo ran >>ledger"}"#));
    let mut wire = Wire::plain(env);
    let session = wire.session(env, &keep());
    wire.prompt(&session, "look");
    wire.until_type("approval.requested");
    (wire, session)
}

#[track_caller]
fn crashes(attached: &Attached) -> usize {
    attached.events.iter().filter(|event| event["code"] == "session_crashed").count()
}

/// A later turn of `session`; what the model was shown.
#[track_caller]
fn go_on(attached: &mut Attached, model: &Model, session: &str) -> Request {
    model.push(Reply::text("well"));
    attached.wire.prompt(session, "go on");
    assert_eq!(attached.wire.turn().last().unwrap()["type"], "turn.completed", "{}", attached.wire.report());
    let request = wait(model.requests()).pop().unwrap();
    for call in request.input().iter().filter(|item| item["type"] == "function_call") {
        assert!(request.output(call["call_id"].as_str().unwrap()).is_some(), "no output: {call}");
    }
    request
}

#[test]
fn a_torn_last_line_is_cut_and_said() {
    // How much of the last line is left, in bytes; or of what nobody wrote.
    for left in ["all but the newline", "half", "one byte", "garbage"] {
        let model = Model::start_blocking();
        let env = TestEnv::with_model(&model.url());
        env.start();
        let (wire, session) = asking(&env, &model);
        // Nobody may start it again before its journal is torn.
        env.running("scvd").pop().unwrap().kill();
        env.running("scv-worker").iter().for_each(scv_tests::processes::Process::kill);
        drop(env.supervisor().take().unwrap().wait());
        drop(wire);
        let journal = env.layout().session(session.parse().unwrap()).journal();
        let mut bytes = fs::read(&journal).unwrap();
        let last = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        match left {
            "all but the newline" => bytes.truncate(bytes.len() - 1),
            "half" => bytes.truncate(last + (bytes.len() - last) / 2),
            "one byte" => bytes.truncate(last + 1),
            _ => bytes.extend_from_slice(b"\0\0\xff\xfe{\"record\":"),
        }
        fs::write(&journal, &bytes).unwrap();
        env.start();
        let mut attached = Attached::to(&env, &session, 0);
        assert_eq!(crashes(&attached), 1, "{left}: {:#?}", attached.events);
        let note = attached.attached["note"].as_str().unwrap_or_default().to_owned();
        assert!(note.contains("journal"), "{left}: the user is told: {}", attached.attached);
        let request = go_on(&mut attached, &model, &session);
        assert!(request.output("c-1").unwrap().contains("the door is blue"), "{left}");
        assert!(!env.work().join("ledger").exists(), "{left}: nothing ran");
        records(&journal);
        drop(attached);
        env.finish();
    }
}

#[test]
fn a_death_in_the_middle_of_coming_back_is_no_second_interruption() {
    for (nth, moment) in [(1, Moment::Before), (1, Moment::After), (2, Moment::Before), (2, Moment::After)] {
        let model = Model::start_blocking();
        let env = TestEnv::with_model(&model.url());
        env.start();
        let (wire, session) = asking(&env, &model);
        let worker = env.worker_of(&session);
        let spare = || env.running("scv-worker").into_iter().find(|process| process.pid != worker.pid);
        scv_tests::eventually("a spare worker", scv_tests::DEADLINE, || spare().is_some());
        let killer = Killer::at_write(&spare().unwrap(), "journal.jsonl", nth, moment);
        worker.kill();
        drop(wire);
        let done = killer.writes();
        assert_eq!(done, nth - usize::from(moment == Moment::Before));
        for _ in 0..2 {
            let attached = Attached::to(&env, &session, 0);
            assert_eq!(crashes(&attached), 1, "{nth} {moment:?}: {:#?}", attached.events);
        }
        go_on(&mut Attached::to(&env, &session, 0), &model, &session);
        records(&env.layout().session(session.parse().unwrap()).journal());
        env.finish();
    }
}

/// A server whose state lies on a small disk of its own, and where that is seen from outside.
fn on_a_small_disk(env: &TestEnv) -> (Wire, PathBuf) {
    env.layout().create().unwrap();
    let mut command = env.command_at(Path::new("/usr/bin/unshare"));
    command.args(["--mount", "--propagation", "private"]);
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let script = "mount -t tmpfs -o size=512k,mode=700 none \"$SCV_HOME/state\"; exec \"$WORKER\" --stdio";
    command.args(["/bin/bash", "-euc", script]).env("WORKER", binary_path("scv-worker"));
    let mut wire = Wire::child(command);
    // It answers, so it is no shell any more.
    wire.initialize(&[]);
    let pid = wire.process().unwrap().pid;
    let state = env.layout().state();
    (wire, Path::new(&format!("/proc/{pid}/root")).join(state.strip_prefix("/").unwrap()))
}

fn fill(state: &Path) {
    let mut filler = fs::File::create(state.join("filler")).unwrap();
    for size in [4096, 512, 1] {
        while std::io::Write::write_all(&mut filler, &vec![b'x'; size]).is_ok() {}
    }
}

/// More than what is left of the journal's last page.
fn long(text: &str) -> String {
    format!("{text} {}", "x".repeat(16 << 10))
}

#[test]
fn on_a_full_disk_nothing_is_announced_and_the_client_is_told() {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    let (mut wire, state) = on_a_small_disk(&env);
    let session = wire.session(&env, &json!({}));
    model.push(Reply::text("one"));
    wire.prompt(&session, "first");
    wire.turn();

    // Idle: no turn begins.
    fill(&state);
    let refused = wire.ask(json!({"type": "turn.start", "session_id": session, "prompt": long("second")}));
    assert_eq!((&refused["type"], &refused["code"]), (&json!("error"), &json!("internal_error")), "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("pace"), "{refused}");
    fs::remove_file(state.join("filler")).unwrap();

    // While a turn runs: nothing waits, and the turn ends with the reason.
    let gate = Gate::new();
    model.push(Reply::new().delta("thinking").stall(&gate).delta(&long("three")));
    wire.prompt(&session, "third");
    wait(gate.reached());
    fill(&state);
    let refused = wire.ask(json!({"type": "turn.start", "session_id": session, "prompt": long("fourth")}));
    assert_eq!(refused["code"], "internal_error", "{refused}");
    gate.release();
    let end = wire.turn().pop().unwrap();
    assert_eq!((&end["type"], &end["code"]), (&json!("turn.failed"), &json!("internal_error")), "{end}");
    assert!(end["message"].as_str().unwrap().contains("pace"), "{end}");

    // With room again it goes on, and only what was acknowledged ever happened.
    fs::remove_file(state.join("filler")).unwrap();
    model.push(Reply::text("five"));
    wire.prompt(&session, "fifth");
    assert_eq!(wire.turn().pop().unwrap()["type"], "turn.completed");
    let asked: Vec<String> = wait(model.requests()).iter().map(Request::prompt).collect();
    assert_eq!(asked, ["first", "third", "fifth"]);
    let journal = state.join("sessions").join(&session).join("journal.jsonl");
    let records = records(&journal);
    let ends = records.iter().map(|record| &record["event"]).filter(|event| is_terminal(event));
    let kinds: Vec<&str> = ends.map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["turn.completed", "turn.failed", "turn.completed"], "each end is kept: {records:#?}");
    let text = Value::from(records).to_string();
    assert!(!text.contains("second") && !text.contains("fourth"), "{text}");
    drop(wire);
    env.finish();
}
