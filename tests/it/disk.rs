//! A disk that fills up, or that nobody may write to any more, while a session runs: what could not
//! be kept was not acknowledged, and once it can be again the session goes on.

use std::path::Path;
use std::process::Command;

use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::talk::{failure, of_type, streamed};
use scv_tests::{Attached, Program, Talk, TestEnv, Wire, eventually, wait};
use serde_json::{Value, json};

/// A disk of 512 KiB for `state/sessions`, in mounts that only this supervisor and its workers see.
const SCRIPT: &str = "mount -t tmpfs -o size=512k,mode=0700 none \"$SCV_HOME/state/sessions\"; \
                      exec \"$SCVD\" --scv-home \"$SCV_HOME\"";

/// The disk of the sessions.
struct Disk {
    /// Whoever sees it.
    pid: i32,
    filler: std::path::PathBuf,
}

impl Disk {
    /// Starts the instance's supervisor on a small disk.
    fn start(env: &TestEnv) -> Self {
        env.layout().create().unwrap();
        let mut command = env.command_at(Path::new("/usr/bin/unshare"));
        command.args(["--mount", "--propagation", "private"]);
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["/bin/bash", "-euc", SCRIPT]).env("SCVD", scv_tests::env::binary_path("scvd"));
        let supervisor = Program::start(&mut command);
        assert_eq!(supervisor.stdout_until("the line `ready`", |text| text.contains('\n')), "ready\n");
        let pid = supervisor.pid();
        *env.supervisor() = Some(supervisor);
        Self { pid, filler: env.layout().sessions().join(".filler") }
    }

    /// Runs a script where the disk is seen; `$0` is the filler.
    fn run(&self, script: &str) {
        self.output(script);
    }

    fn output(&self, script: &str) -> String {
        let mut command = Command::new("/usr/bin/nsenter");
        command.args(["--target", &self.pid.to_string(), "--mount"]);
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        Program::start(command.args(["/bin/bash", "-c", script]).arg(&self.filler)).wait().exits(0).stdout.clone()
    }

    fn fill(&self) {
        self.run("head -c 1M /dev/zero >\"$0\" 2>/dev/null; test -s \"$0\"");
    }

    fn read(&self, name: &str) -> String {
        let mut command = Command::new("/usr/bin/nsenter");
        command.args(["--target", &self.pid.to_string(), "--mount"]);
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        let cat = command.args(["/bin/cat"]).arg(self.filler.with_file_name(name));
        Program::start(cat).wait().exits(0).stdout.clone()
    }

    fn free(&self) {
        self.run("rm \"$0\"");
    }
}

fn talk() -> (Disk, Talk) {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    let disk = Disk::start(&env);
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({"auto_approve": true}));
    (disk, Talk { wire, session, model, env })
}

/// More than what may be left of a block of the journal.
fn long_prompt() -> String {
    "long ".repeat(4000)
}

#[test]
fn a_prompt_that_cannot_be_kept_is_refused_and_not_run() {
    let (disk, mut talk) = talk();
    talk.model.push(Reply::text("one"));
    talk.turn("first");
    disk.fill();
    for _ in 0..3 {
        let answer = talk.wire.ask(json!({"type": "turn.start", "session_id": talk.session, "prompt": long_prompt()}));
        assert_eq!(answer["type"], "error", "{answer}");
        assert!(answer["message"].as_str().unwrap().contains("space"), "{answer}");
    }
    assert_eq!(wait(talk.model.requests()).len(), 1, "nothing was run");
    disk.free();
    talk.model.push(Reply::text("two"));
    assert_eq!(streamed(&talk.turn("second")), "two");
    let history = Value::from(talk.last_request().input().to_vec()).to_string();
    assert!(history.contains("first") && !history.contains("long long"), "{}", &history[..history.len().min(500)]);
}

#[test]
fn a_prompt_that_cannot_be_queued_is_not_announced() {
    let (disk, mut talk) = talk();
    let gate = Gate::new();
    talk.model.push(Reply::new().delta("a").stall(&gate).delta("b"));
    talk.wire.prompt(&talk.session.clone(), "first");
    talk.wire.until_type("assistant.delta");
    disk.fill();
    let answer = talk.wire.ask(json!({"type": "turn.start", "session_id": talk.session, "prompt": long_prompt()}));
    assert_eq!(answer["type"], "error", "{answer}");
    disk.free();
    gate.release();
    let events = talk.wire.turn();
    assert_eq!(events.last().unwrap()["type"], "turn.completed");
    assert_eq!(of_type(&events, "queue.enqueued"), Vec::<Value>::new());
    talk.model.push(Reply::text("next"));
    assert_eq!(streamed(&talk.turn("second")), "next", "and nothing was waiting");
}

#[test]
fn a_result_that_cannot_be_kept_fails_the_turn_with_its_reason() {
    let (disk, mut talk) = talk();
    let gate = Gate::new();
    talk.env.file("a", "x".repeat(60_000));
    talk.model.push(Reply::new().delta("look").stall(&gate).call("read", &json!({"path": "a"})));
    talk.wire.prompt(&talk.session.clone(), "read it");
    talk.wire.until_type("assistant.delta");
    disk.fill();
    gate.release();
    let (code, message) = failure(&talk.wire.turn());
    assert_eq!(code, "internal_error");
    assert!(message.contains("journal") && message.contains("space"), "{message}");
    disk.free();
    talk.model.push(Reply::text("fine again"));
    assert_eq!(streamed(&talk.turn("go on")), "fine again");
    let asked = talk.last_request();
    for call in asked.input().iter().filter(|item| item["type"] == "function_call") {
        assert!(asked.output(call["call_id"].as_str().unwrap()).is_some(), "{call} has no result");
    }
}

#[test]
fn an_end_that_was_told_on_a_full_disk_is_kept_once_there_is_room() {
    let (disk, mut talk) = talk();
    let gate = Gate::new();
    talk.env.file("a", "x".repeat(60_000));
    talk.model.push(Reply::new().delta("look").stall(&gate).call("read", &json!({"path": "a"})));
    talk.wire.prompt(&talk.session.clone(), "read it");
    talk.wire.until_type("assistant.delta");
    disk.fill();
    gate.release();
    let told = talk.wire.turn().pop().unwrap();
    disk.free();
    // Nobody says anything more to the session before its worker dies.
    let journal = format!("cat \"${{0%/*}}/{}/journal.jsonl\"", talk.session);
    let is_kept = || disk.output(&journal).contains("\"turn.failed\"");
    eventually("the end is in the journal", scv_tests::DEADLINE, is_kept);
    talk.env.worker_of(&talk.session).kill();
    let mut again = Attached::to(&talk.env, &talk.session, 0).events.pop().unwrap();
    again["request_id"] = told["request_id"].clone();
    assert_eq!(again, told);
}

#[test]
fn what_could_not_be_kept_leaves_no_gap_in_the_numbers() {
    let (disk, mut talk) = talk();
    let gate = Gate::new();
    talk.env.file("a", "x".repeat(60_000));
    talk.model.push(Reply::new().delta("look").stall(&gate).call("read", &json!({"path": "a"})));
    talk.wire.prompt(&talk.session.clone(), "read it");
    let mut events = talk.wire.collect("a piece", |event| event["type"] == "assistant.delta");
    disk.fill();
    talk.wire.ask(json!({"type": "turn.start", "session_id": talk.session, "prompt": long_prompt()}));
    gate.release();
    events.extend(talk.wire.turn());
    talk.wire.ask(json!({"type": "turn.start", "session_id": talk.session, "prompt": long_prompt()}));
    disk.free();
    talk.model.push(Reply::text("fine again"));
    events.extend(talk.turn("go on"));
    let numbers: Vec<u64> = events.iter().filter_map(scv_tests::session::seq).collect();
    let first = numbers[0];
    assert_eq!(numbers, (first..first + numbers.len() as u64).collect::<Vec<_>>(), "{events:#?}");
}

#[test]
fn a_session_that_cannot_be_kept_is_not_started_and_the_others_go_on() {
    let (disk, mut talk) = talk();
    disk.fill();
    let answer = Wire::plain(&talk.env).ask(json!({"type": "session.start", "cwd": talk.env.work()}));
    assert_eq!(answer["type"], "error", "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("space"), "{answer}");
    disk.free();
    talk.neighbour();
    talk.model.push(Reply::text("here"));
    assert_eq!(streamed(&talk.turn("hello")), "here");
}

#[test]
fn on_a_disk_that_became_read_only_no_session_is_started_until_it_is_mended() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    let disk = Disk::start(&env);
    disk.run("mount -o remount,ro \"${0%/*}\"");
    let answer = Wire::plain(&env).ask(json!({"type": "session.start", "cwd": env.work()}));
    assert!(answer["type"] == "error" && answer["message"].as_str().unwrap().contains("ead-only"), "{answer}");
    disk.run("mount -o remount,rw \"${0%/*}\"");
    Wire::plain(&env).session(&env, &json!({}));
    env.finish();
}

/// The end of a turn could not be kept, so the next prompt was not started, and nobody tried again.
#[test]
fn a_turn_whose_end_found_no_room_is_kept_and_followed_by_the_next_once_there_is_room() {
    let (disk, mut talk) = talk();
    let gate = Gate::new();
    talk.model.push(Reply::new().delta("a").stall(&gate).delta("b"));
    talk.model.push(Reply::text("the next"));
    let session = talk.session.clone();
    talk.wire.prompt(&session, "first");
    talk.wire.until_type("assistant.delta");
    talk.wire.prompt(&session, "second");
    talk.wire.until_type("queue.enqueued");
    disk.fill();
    // Until the journal's last block is full, too.
    let pause = json!({"type": "session.pause", "session_id": session, "paused": false});
    loop {
        talk.wire.request(pause.clone());
        let answer =
            talk.wire.until("the answer", |event| event["type"] == "queue.snapshot" || event["type"] == "error");
        if answer["type"] == "error" {
            break;
        }
    }
    gate.release();
    let mut events = talk.wire.turn();
    assert_eq!(events.last().unwrap()["type"], "turn.failed");
    disk.free();
    events.extend(talk.wire.collect("the second turn", |event| event["type"] == "turn.completed"));
    assert_eq!(events.iter().filter(|event| event["content"] == "the next").count(), 2, "delta and whole: {events:#?}");
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");

    // The end that was owed is in the journal: a death now tells of no interrupted turn.
    talk.env.worker_of(&session).kill();
    let journal = disk.read(&format!("{session}/journal.jsonl"));
    let ends = journal.matches("\"turn.completed\"").count() + journal.matches("\"turn.failed\"").count();
    assert_eq!(ends, 2, "{journal}");
}
