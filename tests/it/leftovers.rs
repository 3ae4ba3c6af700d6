//! What commands leave behind: nothing, whatever their end; and nobody else is touched.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use scv_tests::fakes::model::{Model, Reply};
use scv_tests::processes::Process;
use scv_tests::{TestEnv, Wire, eventually};
use serde_json::{Value, json};

/// What takes no time of its own; the rest is for a loaded machine.
const AT_ONCE: Duration = Duration::from_secs(1);

struct Case {
    env: TestEnv,
    model: Model,
}

impl Case {
    fn new() -> Self {
        let model = Model::start_blocking();
        let env = TestEnv::with_model(&model.url());
        env.start();
        Self { env, model }
    }

    fn session(&self) -> (Wire, String) {
        let mut wire = Wire::plain(&self.env);
        let session = wire.session(&self.env, &json!({"on_disconnect": "keep", "auto_approve": true}));
        (wire, session)
    }

    /// Runs one call to its end; its `tool.completed` and how long it took.
    #[track_caller]
    fn call(&self, wire: &mut Wire, session: &str, name: &str, arguments: &Value) -> (Value, Duration) {
        self.model.push(Reply::new().call(name, arguments));
        self.model.push(Reply::text("done"));
        let began = Instant::now();
        wire.prompt(session, "work");
        let completed = wire.until_type("tool.completed");
        let time = began.elapsed();
        wire.turn();
        (completed, time)
    }

    #[track_caller]
    fn bash(&self, wire: &mut Wire, session: &str, command: &str) -> (Value, Duration) {
        self.call(wire, session, "bash", &json!({"command": command}))
    }
}

#[test]
fn a_background_child_that_holds_the_pipes_is_ended_after_a_short_drain_and_said() {
    let case = Case::new();
    let (mut wire, session) = case.session();
    let (completed, took) = case.bash(&mut wire, &session, "echo before; sleep 600 & echo after");
    assert!(took < AT_ONCE, "{took:?}");
    let output = completed["output"].as_str().unwrap();
    assert!(output.contains("before") && output.contains("after"), "{output}");
    assert!(output.contains("sleep"), "what was ended is named: {output}");
    assert_eq!(case.env.children(), []);
    drop(wire);
    case.env.finish();
}

#[test]
fn a_child_that_left_its_session_does_not_outlive_the_call() {
    let case = Case::new();
    let (mut wire, session) = case.session();
    for command in [
        "setsid sleep 600 >/dev/null 2>&1 &",
        "(setsid sh -c 'sleep 601 & sleep 602 &' >/dev/null 2>&1 &)",
        "env -i setsid sleep 603 >/dev/null 2>&1 &",
        "setsid --fork sleep 604 >/dev/null 2>&1; nohup sleep 605 >/dev/null 2>&1 & disown",
    ] {
        let (_, took) = case.bash(&mut wire, &session, command);
        assert!(took < AT_ONCE, "{command}: {took:?}");
        assert_eq!(case.env.children(), [], "{command}");
    }
    drop(wire);
    case.env.finish();
}

#[test]
fn forty_calls_of_every_end_leave_no_zombie() {
    let case = Case::new();
    let (mut wire, session) = case.session();
    let ends = [
        "true",
        "exit 3",
        "kill -9 $$",
        "(sleep 600 &) ; true",
        "setsid sh -c 'sleep 0.01 & exit' & true",
        "sh -c 'sh -c \"exit 1\" & exit 2' & wait; false",
        "for n in 1 2 3 4 5 6 7 8; do (true &) & done",
        "exec sleep 0",
    ];
    for round in 0..5 {
        let mut reply = Reply::new();
        for (place, command) in ends.iter().enumerate() {
            let arguments = json!({"command": command}).to_string();
            reply = reply.call_as(&format!("c-{round}-{place}"), "bash", &arguments);
        }
        case.model.push(reply);
        case.model.push(Reply::text("done"));
        wire.prompt(&session, "work");
        let events = wire.turn();
        assert_eq!(events.iter().filter(|event| event["type"] == "tool.completed").count(), ends.len());
    }
    let (completed, _) =
        case.call(&mut wire, &session, "bash", &json!({"command": "sleep 600 & sleep 601", "timeout_seconds": 1}));
    assert_eq!(completed["success"], json!(false));
    assert_eq!(case.env.children(), []);
    eventually("no zombie is left", AT_ONCE, || case.env.zombies().is_empty());
    drop(wire);
    case.env.finish();
}

#[test]
fn processes_of_others_are_never_touched_whatever_their_name() {
    let case = Case::new();
    let mut stranger = Command::new("/bin/sleep").arg("6000").stdin(Stdio::null()).spawn().unwrap();
    let stranger_process = Process::of(stranger.id().cast_signed()).unwrap();
    // A run of another session goes on, with children of the same name that left it.
    let (mut busy, other) = case.session();
    case.model.push(Reply::new().call("bash", &json!({"command": "setsid sleep 6001 & sleep 6002 & wait"})));
    busy.prompt(&other, "work");
    let theirs = || -> Vec<Process> {
        let is_theirs = |child: &Process| child.name == "sleep" && child.pid != stranger_process.pid;
        case.env.children().into_iter().filter(is_theirs).collect()
    };
    eventually("it runs", scv_tests::DEADLINE, || theirs().len() == 2);
    let theirs = theirs();

    let (mut wire, session) = case.session();
    case.bash(&mut wire, &session, "setsid sleep 700 & sleep 701 &");
    assert!(theirs.iter().all(Process::is_alive), "after a call ended");
    case.env.worker_of(&session).signal(Signal::KILL);
    wire.until_closed();
    let (mut wire, session) = case.session();
    case.bash(&mut wire, &session, "true");
    assert!(theirs.iter().all(Process::is_alive), "after a worker died");
    wire.close_write();
    drop(wire);

    case.env.worker_of(&other).signal(Signal::KILL);
    for process in &theirs {
        assert!(process.gone_within(Duration::from_secs(2)), "{process}");
    }
    assert!(stranger_process.is_alive(), "it is nobody's of ours");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    drop(busy);
    case.env.finish();
}

#[test]
fn what_is_no_regular_file_is_refused_and_blocks_nobody() {
    let case = Case::new();
    let (mut wire, session) = case.session();
    rustix::fs::mkfifoat(rustix::fs::CWD, case.env.work().join("fifo"), 0o600.into()).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(case.env.work().join("socket")).unwrap();
    std::fs::create_dir(case.env.work().join("dir")).unwrap();
    for path in ["fifo", "socket", "dir"] {
        let (completed, took) = case.call(&mut wire, &session, "read", &json!({"path": path}));
        assert_eq!(completed["success"], json!(false), "{path}: {completed}");
        assert!(took < AT_ONCE, "{path}: {took:?}");
    }
    drop(wire);
    case.env.finish();
}
