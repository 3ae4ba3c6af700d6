//! Start, adoption, the guard, and every way to end.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use serde_json::json;
use shared::process::{Identity, Signal};

use super::home::{Home, Scvd, eventually, gone, kill};

#[test]
fn a_second_supervisor_names_the_first_and_leaves_its_socket_alone() {
    let home = Home::new();
    let first = home.start();
    let (mut second, line) = Scvd::line(home.command(&[]));
    assert!(line.starts_with(&format!("error: another scvd (pid {}) serves this home", first.pid())), "{line}");
    assert_eq!(second.wait().code(), Some(3));
    assert_eq!(home.status()["pid"], first.pid());
}

#[test]
fn state_and_socket_are_private_whatever_they_were_before() {
    let home = Home::new();
    std::fs::create_dir(home.layout.state()).unwrap();
    std::fs::set_permissions(home.layout.state(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let _scvd = home.start();
    let mode = |path: std::path::PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(home.layout.state()), mode(home.layout.socket())), (0o700, 0o600));
}

#[test]
fn a_broken_configuration_does_not_keep_it_down_and_is_in_the_status() {
    let home = Home::new();
    home.config("[supervisor]\nmax_sessions = \"many\"\n");
    let _scvd = home.start();
    let error = home.status()["config_error"].as_str().unwrap().to_owned();
    assert!(error.contains("line 2") && error.contains("supervisor.max_sessions"), "{error}");
    home.config("[supervisor]\nmax_sessions = 5\n");
    let answer = home.client().control(&json!({"action": "reload"}));
    assert_eq!(answer["status"]["config_error"], json!(null), "{answer}");
}

#[test]
fn after_sigkill_the_next_one_adopts_the_worker_and_its_client_notices_nothing() {
    let home = Home::new();
    let mut scvd = home.start();
    let (mut client, worker, session) = home.session(None);
    kill(scvd.pid());
    scvd.wait();
    client.say("still there");
    assert_eq!(client.line(), "heard 11");

    let _next = home.start();
    let status = home.status();
    assert!(
        status["workers"].as_array().unwrap().iter().any(|w| w["pid"] == worker && w["role"] == session),
        "{status}"
    );
    assert!(status["last_stop"].as_str().unwrap().contains("died without a word"), "{status}");
    let (mut other, same_worker, _) = home.session(Some(&session));
    assert_eq!(same_worker, worker);
    other.say("x");
    assert_eq!(other.line(), "heard 1");
}

#[test]
fn a_deaf_worker_gets_its_verdict_in_two_seconds_and_a_dead_one_leaves_no_bundle() {
    let home = Home::new();
    home.config("[supervisor]\nspare_workers = 0\n");
    let mut scvd = home.start();
    let (_one, deaf, _) = home.session(None);
    let deaf = Identity::of(deaf).unwrap();
    kill(scvd.pid());
    scvd.wait();
    home.set("deaf", 1);
    let started = Instant::now();
    let mut scvd = home.start();
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert!(!deaf.is_alive());

    let (_two, killed, _) = home.session(None);
    kill(scvd.pid());
    scvd.wait();
    kill(killed);
    let _next = home.start();
    assert_eq!(home.status()["workers"], json!(null));
    assert_eq!(std::fs::read_dir(home.layout.workers()).unwrap().count(), 0);
}

#[test]
fn under_the_guard_it_comes_back_and_ends_what_a_worker_left_that_died_with_it() {
    let home = Home::new();
    let mut guard = home.start_with(&["--guard", "--foreground"]);
    let scvd = home.status()["pid"].as_i64().unwrap();
    let scvd = Identity::of(i32::try_from(scvd).unwrap()).unwrap();
    let (mut client, worker, _) = home.session(None);
    let spawned = client.spawn();
    let worker = Identity::of(worker).unwrap();
    // Stopped first, so that neither can end anything of the other.
    scvd.signal(Signal::STOP).unwrap();
    worker.signal(Signal::KILL).unwrap();
    scvd.signal(Signal::KILL).unwrap();
    gone(&spawned);
    let next = eventually("another supervisor", || home.try_status()?["pid"].as_i64());
    assert_ne!(next, i64::from(scvd.pid));
    guard.signal(Signal::INT);
    assert_eq!(guard.wait().code(), Some(0));
    assert!(!home.layout.socket().exists());
}

#[test]
fn under_the_guard_what_an_adopted_worker_leaves_is_ended() {
    let home = Home::new();
    let mut guard = home.start_with(&["--guard", "--foreground"]);
    let scvd = i32::try_from(home.status()["pid"].as_i64().unwrap()).unwrap();
    let (mut client, worker, session) = home.session(None);
    let spawned = client.spawn();
    kill(scvd);
    eventually("adoption", || {
        let status = home.try_status()?;
        status["workers"].as_array()?.iter().any(|w| w["role"] == session && w["version"] != "").then_some(())
    });
    assert!(spawned.iter().all(Identity::is_alive));
    kill(worker);
    gone(&spawned);
    guard.signal(Signal::TERM);
    assert_eq!(guard.wait().code(), Some(0));
}

#[test]
fn without_a_guard_what_an_adopted_worker_leaves_is_found_by_its_marks() {
    let home = Home::new();
    let mut scvd = home.start();
    let (mut client, worker, _) = home.session(None);
    let (mut other, ..) = home.session(None);
    let (spawned, living) = (client.spawn(), other.spawn());
    kill(scvd.pid());
    scvd.wait();
    let _next = home.start();
    kill(worker);
    gone(&spawned);
    assert!(living.iter().all(Identity::is_alive));
}

#[test]
fn without_a_guard_what_workers_left_that_died_with_it_is_gone_before_it_is_ready() {
    let home = Home::new();
    let mut scvd = home.start();
    let (mut client, worker, _) = home.session(None);
    let spawned = client.spawn();
    scvd.signal(Signal::STOP);
    kill(worker);
    scvd.signal(Signal::KILL);
    scvd.wait();
    assert!(spawned.iter().all(Identity::is_alive));
    let _next = home.start();
    assert!(!spawned.iter().any(Identity::is_alive));
}

#[test]
fn the_guard_leaves_when_there_is_nothing_to_do() {
    let home = Home::new();
    home.config("[supervisor]\nidle_exit_seconds = 1\n");
    let mut guard = home.start_with(&["--guard", "--on-demand"]);
    assert_eq!(guard.wait().code(), Some(0));
    assert!(!home.layout.socket().exists());
    assert!(home.layout.log().exists());
    assert!(!home.layout.stopped().exists());
}

#[test]
fn the_guard_does_not_start_again_what_cannot_start() {
    let home = Home::new();
    let _first = home.start();
    let (mut guard, line) = Scvd::line(home.command(&["--guard"]));
    assert!(line.starts_with("error: another scvd"), "{line}");
    assert_eq!(guard.wait().code(), Some(3));
}

#[test]
fn a_stop_ends_everything_in_time_answers_and_stays_down() {
    let home = Home::new();
    home.set("stubborn", 2);
    let mut scvd = home.start();
    let (mut client, worker, _) = home.session(None);
    let mut ended = client.spawn();
    ended.push(Identity::of(worker).unwrap());
    ended.push(Identity::of(home.wait_for_spare()).unwrap());
    let mut stopper = home.client();
    let started = Instant::now();
    let answer = stopper.control(&json!({"action": "stop"}));
    assert_eq!(answer["type"], "daemon.status", "{answer}");
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert!(ended.iter().all(|id| !id.is_alive()), "the answer came before the end");
    assert_eq!(scvd.wait().code(), Some(0));
    assert!(home.layout.stopped().exists() && !home.layout.socket().exists());
    assert_eq!(std::fs::read_dir(home.layout.workers()).unwrap().count(), 0);
}

#[test]
fn sigint_ends_everything_and_sigterm_leaves_the_workers() {
    let home = Home::new();
    let mut scvd = home.start();
    let (mut client, worker, session) = home.session(None);
    scvd.signal(Signal::TERM);
    assert_eq!(scvd.wait().code(), Some(0));
    assert!(!home.layout.socket().exists());
    client.say("x");
    assert_eq!(client.line(), "heard 1");

    let mut scvd = home.start();
    assert_eq!(home.session(Some(&session)).1, worker);
    scvd.signal(Signal::INT);
    assert_eq!(scvd.wait().code(), Some(0));
    gone(&[Identity::of(worker)].into_iter().flatten().collect::<Vec<_>>());
    assert!(!home.layout.stopped().exists());
}

#[test]
fn an_unlinked_socket_is_bound_again() {
    let home = Home::new();
    home.config("[supervisor]\nreconcile_seconds = 1\n");
    let _scvd = home.start();
    std::fs::remove_file(home.layout.socket()).unwrap();
    eventually("the socket", || home.layout.socket().exists().then_some(()));
    home.status();
}

#[test]
fn sessions_that_have_work_start_at_boot_and_no_others() {
    let home = Home::new();
    let wanted = shared::protocol::SessionId::new();
    let other = shared::protocol::SessionId::new();
    home.layout.create().unwrap();
    for id in [wanted, other] {
        shared::fs::private_dir(home.layout.session(id).path()).unwrap();
    }
    std::fs::write(home.layout.wanted_session(wanted), "").unwrap();
    let _scvd = home.start();
    let live = eventually("the wanted session", || {
        let answer = home.client().control(&json!({"action": "sessions", "all": true}));
        let sessions = answer["status"]["sessions"].clone();
        (sessions["live"] == 1).then_some(sessions)
    });
    let state = |id: shared::protocol::SessionId| {
        let entries = live["entries"].as_array().unwrap();
        entries.iter().find(|entry| entry["id"] == id.to_string()).unwrap()["state"].clone()
    };
    assert_eq!((state(wanted), state(other)), (json!("idle"), json!("hibernated")));
}
