//! What once went wrong; each test says what happened then.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use scv_tests::fakes::model::{Model, Reply};
use scv_tests::{Program, TestEnv, Wire, eventually};
use serde_json::json;

const NOBODY: &str = "http://127.0.0.1:9/v1";

/// A log that cannot be written made the logger say so on stderr, which panicked: on a full disk
/// the first line that was logged ended the supervisor, and one that could not start said nothing.
#[test]
fn a_log_on_a_full_disk_ends_no_supervisor() {
    let env = TestEnv::with_model(NOBODY);
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let start = || {
        let mut command = env.command("scvd");
        command.arg("--scv-home").arg(env.layout().home());
        let mut scvd = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(full()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(scvd.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (scvd, line)
    };
    let (mut scvd, line) = start();
    assert_eq!(line, "ready\n");
    // It has logged that it is ready by the time it answers.
    Wire::plain(&env).control(&json!({"action": "status"}));

    let (mut second, line) = start();
    assert!(line.starts_with("error: another scvd"), "{line}");
    assert_eq!(second.wait().unwrap().code(), Some(3));

    env.scv(&["stop"]).exits(0);
    assert_eq!(scvd.wait().unwrap().code(), Some(0));
    env.finish();
}

/// A path that is not UTF-8 cannot be written as JSON; an empty line was sent instead, and the
/// client waited for its answer.
#[test]
fn a_directory_that_is_not_utf_8_is_refused_at_once() {
    let env = TestEnv::with_model(NOBODY);
    env.start();
    let dir = env.work().join(std::ffi::OsStr::from_bytes(b"not-utf-8-\xff"));
    fs::create_dir(&dir).unwrap();
    let output = Program::start(env.command("scv").args(["exec", "hello"]).current_dir(&dir)).wait();
    output.exits(2);
    assert!(output.stderr.contains("not UTF-8"), "{output:?}");
    env.finish();
}

/// A command that ignores SIGTERM used up all of the time that `scv stop` gives a worker: it was
/// killed before it had journaled why the turn ended, and the client was told of a crash.
#[test]
fn a_stop_during_a_stubborn_command_is_told_as_a_stop() {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    env.start();
    let command = "trap '' TERM; touch mark; while :; do sleep 1; done";
    model.push(Reply::new().call("bash", &json!({"command": command})));
    let exec = env.scv_start(&["exec", "--yes", "work"]);
    eventually("the command runs", scv_tests::DEADLINE, || env.work().join("mark").exists());
    env.scv(&["stop"]).exits(0);
    let output = exec.wait();
    output.exits(1);
    assert!(output.stderr.contains("interrupted: stopped"), "{output:?}");
    env.finish();
}

/// `scv stop` found nobody while a supervisor was on its way up, or was started again after a
/// crash: that one served on.
#[test]
fn a_supervisor_that_comes_up_after_a_stop_leaves() {
    let env = TestEnv::with_model(NOBODY);
    env.scv(&["stop"]).exits(0);
    let output = env.supervise(&["--on-demand"]).wait();
    output.exits(0);
    assert!(output.stdout.starts_with("error: it was stopped on purpose"), "{output:?}");
    env.finish();
}

/// As above, with workers that the crashed one had left.
#[test]
fn a_stop_between_a_crash_and_the_restart_ends_the_workers() {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    let supervisor = env.supervise(&[]);
    supervisor.stdout_until("the line `ready`", |text| text.contains('\n'));
    model.push(Reply::new().call("bash", &json!({"command": "touch mark; sleep 600"})));
    let exec = env.scv_start(&["exec", "--yes", "work"]);
    eventually("the command runs", scv_tests::DEADLINE, || env.work().join("mark").exists());
    supervisor.signal(Signal::KILL);
    supervisor.wait();
    env.scv(&["stop"]).exits(0);
    env.supervise(&["--on-demand"]).wait().exits(0);
    exec.wait().exits(1);
    env.gone_within(Duration::from_secs(1), TestEnv::processes);
    env.finish();
}

/// A session had to be marked as closed before it was removed, which one whose files are damaged
/// cannot be: nothing but a file manager could remove it.
#[test]
fn a_damaged_session_can_be_removed() {
    let env = TestEnv::new();
    env.configure(NOBODY, "[provider_limits]\nmax_retries = 0");
    env.start();
    for damage in ["meta.json", "lock"] {
        env.scv(&["exec", "hello"]).exits(1);
        let dir = fs::read_dir(env.layout().sessions()).unwrap().next().unwrap().unwrap().path();
        let id = dir.file_name().unwrap().to_str().unwrap().to_owned();
        eventually("its worker has left", scv_tests::DEADLINE, || {
            env.session_entry(&id).is_some_and(|entry| entry["state"] == json!("closed"))
        });
        if damage == "lock" {
            fs::remove_file(dir.join("lock")).unwrap();
            fs::create_dir(dir.join("lock")).unwrap();
        } else {
            fs::write(dir.join("meta.json"), "{").unwrap();
        }
        env.scv(&["sessions", "rm", &id]).exits(0);
        assert!(!dir.exists(), "{damage}");
    }
    env.finish();
}

/// A supervisor whose home was removed went on for `idle_exit_seconds`, out of everybody's reach.
#[test]
fn a_supervisor_without_its_home_ends_everything() {
    let env = TestEnv::new();
    env.configure(NOBODY, "[supervisor]\nreconcile_seconds = 1");
    env.start();
    let mut wire = Wire::plain(&env);
    wire.session(&env, &json!({"on_disconnect": "keep"}));
    fs::remove_dir_all(env.layout().state()).unwrap();
    env.supervisor_output().exits(0);
    env.gone_within(Duration::from_secs(1), TestEnv::processes);
    env.finish();
}
