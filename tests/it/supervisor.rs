//! The supervisor's own life: one a home, its socket, its lock, its signals.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use scv_tests::{TestEnv, Wire, eventually};
use serde_json::json;

fn running() -> TestEnv {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start();
    env
}

#[test]
fn the_socket_and_the_state_are_for_their_owner_only() {
    let env = running();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(env.layout().socket()), 0o600);
    assert_eq!(mode(env.layout().state()), 0o700);
    for dir in [env.layout().sessions(), env.layout().workers(), env.layout().delegations(), env.layout().wanted()] {
        assert_eq!(mode(dir.clone()), 0o700, "{}", dir.display());
    }
    env.finish();
}

#[test]
fn a_second_supervisor_says_who_holds_the_lock_and_touches_nothing() {
    let env = running();
    let inode = fs::metadata(env.layout().socket()).unwrap().ino();
    let holder = env.running("scvd").pop().unwrap();
    let second = env.supervise(&[]).wait();
    second.exits(3);
    assert!(second.stdout.starts_with("error: "), "{second:?}");
    assert!(second.stdout.contains(&holder.pid.to_string()), "it names the holder {holder}: {second:?}");
    assert_eq!(fs::metadata(env.layout().socket()).unwrap().ino(), inode);
    Wire::plain(&env).control(&json!({"action": "status"}));
    env.finish();
}

#[test]
fn what_somebody_started_stays_and_what_a_command_needed_leaves_when_idle() {
    for (command, leaves) in [(&["start"][..], false), (&["sessions", "ls"], true)] {
        let env = TestEnv::with_model("http://127.0.0.1:9/v1");
        env.scv(command).exits(0);
        let scvd = env.running("scvd").pop().unwrap();
        assert_eq!(scvd.args.iter().any(|arg| arg == "--on-demand"), leaves, "{command:?}: {scvd}");
        env.finish();
    }
}

#[test]
fn start_makes_a_supervisor_stay_that_a_command_had_started_for_itself() {
    let env = TestEnv::new();
    env.configure("http://127.0.0.1:9/v1", "[supervisor]\nidle_exit_seconds = 1\n");
    let gone = || env.running("scvd").is_empty();
    env.scv(&["sessions", "ls"]).exits(0);
    eventually("it leaves when idle", scv_tests::DEADLINE, gone);
    env.scv(&["sessions", "ls"]).exits(0);
    let told = env.scv(&["start"]);
    told.exits(0);
    assert!(told.stdout.contains("runs already"), "{told:?}");
    assert!(env.layout().kept().exists());
    // Longer than it would have stayed; that nothing happens has no event.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(!gone());
    env.scv(&["stop"]).exits(0);
    assert!(!env.layout().kept().exists());
    env.finish();
}

#[test]
fn of_supervisors_started_at_once_one_wins() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    let started: Vec<_> = (0..6).map(|_| env.supervise(&[])).collect();
    let said: Vec<String> =
        started.iter().map(|program| program.stdout_until("a line", |text| text.contains('\n'))).collect();
    assert_eq!(said.iter().filter(|line| *line == "ready\n").count(), 1, "{said:?}");
    let mut winner = Vec::new();
    for (program, line) in started.into_iter().zip(said) {
        if line == "ready\n" {
            winner.push(program);
        } else {
            program.wait().exits(3);
        }
    }
    Wire::plain(&env).control(&json!({"action": "status"}));
    let winner = winner.pop().unwrap();
    winner.signal(Signal::INT);
    winner.wait().exits(0);
    env.finish();
}

#[test]
fn what_a_power_loss_left_does_not_block_a_start() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.layout().create().unwrap();
    // A socket that nobody listens on, the lock file of a pid that is somebody else's, a worker that is gone.
    drop(UnixListener::bind(env.layout().socket()).unwrap());
    fs::write(env.layout().lock(), "1\n").unwrap();
    let worker = env.layout().worker("00000000");
    fs::create_dir(worker.path()).unwrap();
    fs::write(worker.worker(), r#"{"pid":1,"start":1,"boot":"00000000-0000-0000-0000-000000000000"}"#).unwrap();
    drop(UnixListener::bind(worker.socket()).unwrap());
    env.start();
    assert!(fs::metadata(env.layout().socket()).unwrap().file_type().is_socket());
    Wire::plain(&env).control(&json!({"action": "status"}));
    eventually("the dead worker's bundle is gone", Duration::from_secs(5), || !worker.path().exists());
    env.finish();
}

#[test]
fn torn_files_of_a_power_loss_do_not_block_a_start() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.layout().create().unwrap();
    fs::write(env.layout().lock(), "").unwrap();
    let worker = env.layout().worker("00000001");
    fs::create_dir(worker.path()).unwrap();
    fs::write(worker.worker(), r#"{"pid":"#).unwrap();
    fs::write(env.layout().delegations().join("codex-000000.json"), "{").unwrap();
    fs::write(env.layout().wanted().join("no-session"), "").unwrap();
    env.start();
    Wire::plain(&env).control(&json!({"action": "status"}));
    env.finish();
}

#[test]
fn an_unlinked_socket_is_noticed_and_restored() {
    let env = running();
    let mut before = Wire::plain(&env);
    fs::remove_file(env.layout().socket()).unwrap();
    eventually("the socket is back", Duration::from_secs(20), || env.connect().is_ok());
    Wire::plain(&env).control(&json!({"action": "status"}));
    before.control(&json!({"action": "status"}));
    env.finish();
}

#[test]
fn stopping_unlinks_only_its_own_socket() {
    let env = running();
    fs::remove_file(env.layout().socket()).unwrap();
    let other = UnixListener::bind(env.layout().socket()).unwrap();
    let inode = fs::metadata(env.layout().socket()).unwrap().ino();
    let supervisor = env.running("scvd").pop().unwrap();
    supervisor.signal(Signal::INT);
    env.supervisor_output().exits(0);
    assert_eq!(fs::metadata(env.layout().socket()).unwrap().ino(), inode);
    drop(other);
    env.finish();
}

#[test]
fn an_interrupt_ends_everything() {
    let env = running();
    let mut wire = Wire::plain(&env);
    wire.session(&env, &json!({"on_disconnect": "keep"}));
    assert!(!env.running("scv-worker").is_empty());
    let start = Instant::now();
    env.running("scvd").pop().unwrap().signal(Signal::INT);
    env.supervisor_output().exits(0);
    env.gone_within(Duration::from_secs(1), TestEnv::processes);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert!(!env.layout().socket().exists());
    assert!(!env.layout().stopped().exists(), "only `scv stop` keeps it stopped");
    env.finish();
}

#[test]
fn stop_keeps_it_stopped_until_somebody_runs_it() {
    let env = running();
    env.scv(&["stop"]).exits(0);
    env.supervisor_output().exits(0);
    assert!(env.layout().stopped().exists());
    let refused = env.scv(&["exec", "hello"]);
    refused.exits(1);
    assert!(refused.stderr.contains("scv start"), "it says what to do: {refused:?}");
    assert!(env.running("scvd").is_empty());
    env.finish();
}

#[test]
fn a_session_goes_on_when_its_supervisor_is_replaced() {
    for signal in [Signal::TERM, Signal::KILL] {
        let env = running();
        let mut wire = Wire::plain(&env);
        let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
        let status = Wire::plain(&env).control(&json!({"action": "sessions"}));
        let worker = status["sessions"]["entries"][0]["worker_pid"].clone();
        env.running("scvd").pop().unwrap().signal(signal);
        drop(env.supervisor().take().unwrap().wait());
        wire.request(json!({"type": "session.pause", "session_id": session, "paused": true}));
        wire.until("an answer while no supervisor runs", |event| event["paused"] == json!(true));
        env.start();
        let status = Wire::plain(&env).control(&json!({"action": "sessions"}));
        assert_eq!(status["sessions"]["entries"][0]["id"], json!(session), "{status}");
        assert_eq!(status["sessions"]["entries"][0]["worker_pid"], worker, "{status}");
        wire.request(json!({"type": "session.pause", "session_id": session, "paused": false}));
        wire.until("an answer after the new one came", |event| event["paused"] == json!(false));
        drop(wire);
        env.finish();
    }
}

#[test]
fn a_guarded_supervisor_is_started_again() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start_guarded();
    let first = env.running("scvd").pop().unwrap();
    first.kill();
    let start = Instant::now();
    eventually("another supervisor answers", Duration::from_secs(10), || {
        env.connect().is_ok() && env.running("scvd").iter().any(|process| process.pid != first.pid)
    });
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    Wire::plain(&env).control(&json!({"action": "status"}));
    // The guard leaves with a supervisor that was told to stop.
    env.running("scvd").pop().unwrap().signal(Signal::INT);
    env.supervisor_output().exits(0);
    env.finish();
}

#[test]
fn worker_and_supervisor_die_together_and_the_next_one_ends_what_is_left() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start_guarded();
    let mut wire = Wire::plain(&env);
    wire.session(&env, &json!({"on_disconnect": "keep"}));
    let workers = env.running("scv-worker");
    let supervisor = env.running("scvd").pop().unwrap();
    supervisor.kill();
    for worker in &workers {
        worker.kill();
    }
    eventually("another supervisor answers", Duration::from_secs(10), || env.connect().is_ok());
    Wire::plain(&env).control(&json!({"action": "status"}));
    assert_eq!(env.children(), []);
    env.finish();
}

#[test]
fn a_home_of_any_length_works() {
    let env = TestEnv::new();
    let home = env.root().join("a-directory-with-a-long-name/".repeat(5)).join("scv");
    fs::create_dir_all(&home).unwrap();
    let program = env.command("scvd").arg("--scv-home").arg(&home).env("SCV_HOME", &home).spawn();
    let mut child = program.unwrap();
    let layout = shared::layout::Layout::open(&home).unwrap();
    assert!(layout.socket().as_os_str().len() > 108);
    let connect = || {
        shared::link::SocketAddress::of(&layout.socket())
            .and_then(|address| std::os::unix::net::UnixStream::connect(address.path()))
    };
    eventually("it listens", Duration::from_secs(10), || connect().is_ok());
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    env.finish();
}

#[test]
fn an_idle_supervisor_uses_no_processor() {
    let env = running();
    Wire::plain(&env).control(&json!({"action": "status"}));
    let ticks = || {
        let pid = env.running("scvd").pop().unwrap().pid;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<u64> =
            stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2).map(|f| f.parse().unwrap()).collect();
        fields[0] + fields[1]
    };
    let before = ticks();
    // The measured time itself; nothing is awaited.
    std::thread::sleep(Duration::from_secs(3));
    assert!(ticks() - before <= 2, "{} ticks of 10 ms in 3 s", ticks() - before);
    env.finish();
}
