//! Workers of another release than the supervisor's, and restarts among them.

use serde_json::{Value, json};
use shared::process::{Identity, Signal};

use super::home::{Home, Scvd, eventually, gone};

/// What `status` says of the worker of `role`.
fn worker(home: &Home, role: &str) -> Option<Value> {
    let status = home.try_status()?;
    status["workers"].as_array()?.iter().find(|worker| worker["role"] == role).cloned()
}

fn restart(home: &Home) -> Value {
    home.client().control(&json!({"action": "restart"}))
}

/// The supervisor that answers now, ended with the test.
fn in_charge(home: &Home) -> i64 {
    eventually("a supervisor", || home.try_status())["pid"].as_i64().unwrap()
}

#[test]
fn a_worker_of_the_release_before_goes_on_under_the_next_supervisor_and_its_release_is_shown() {
    let home = Home::new();
    home.config("[supervisor]\nspare_workers = 0\n");
    home.set("old", 1);
    let mut scvd: Scvd = home.start();
    let (mut client, pid, session) = home.session(None);
    let old = Identity::of(pid).unwrap();
    assert_eq!(worker(&home, &session).unwrap()["version"], "0.0.9");
    // The cold path and the warm one.
    scvd.signal(Signal::KILL);
    scvd.wait();
    let _scvd = home.start();
    let answer = restart(&home);
    assert_eq!(answer["type"], "daemon.status", "{answer}");
    assert_eq!(worker(&home, &session).unwrap()["version"], "0.0.9");
    let sessions = home.client().control(&json!({"action": "sessions"}));
    assert_eq!(sessions["status"]["sessions"]["entries"][0]["worker_version"], "0.0.9", "{sessions}");
    client.say("still there");
    assert_eq!(client.line(), "heard 11");
    // It cannot be renewed, and others of this release are beside it.
    let (_, again, _) = home.session(Some(&session));
    assert_eq!(again, pid);
    let (_, other, id) = home.session(None);
    assert_ne!(other, pid);
    assert_eq!(worker(&home, &id).unwrap()["version"], shared::RELEASE);
    home.client().control(&json!({"action": "session_stop", "session_id": session}));
    gone(&[old]);
}

#[test]
fn a_spare_of_another_release_makes_room_for_one_of_ours() {
    let home = Home::new();
    home.set("old", 1);
    let _scvd = home.start();
    let old = Identity::of(home.wait_for_spare()).unwrap();
    restart(&home);
    gone(&[old]);
    // One that has not said hello yet has no version.
    eventually("a spare of ours", || worker(&home, "spare").filter(|spare| spare["version"] == shared::RELEASE));
}

#[test]
fn a_supervisor_that_does_not_speak_with_a_live_worker_does_not_take_over() {
    let home = Home::new();
    home.config("[supervisor]\nspare_workers = 0\n");
    let _scvd = home.start();
    let before = in_charge(&home);
    let (mut client, pid, _) = home.session(None);
    // To the successor it speaks as a release did long ago.
    home.set("ancient", 1);
    let answer = restart(&home);
    assert_eq!(answer["type"], "error", "{answer}");
    let message = answer["message"].as_str().unwrap();
    for part in ["release 0.0.1", "link 0", "stays in charge", "scv stop"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(in_charge(&home), before);
    assert!(Identity::of(pid).unwrap().is_alive());
    client.say("x");
    assert_eq!(client.line(), "heard 1");
}

#[test]
fn a_worker_that_is_deaf_to_the_successor_is_ended_by_it_and_not_before_it_is_in_charge() {
    let home = Home::new();
    home.config("[supervisor]\nspare_workers = 0\n");
    let _scvd = home.start();
    let before = in_charge(&home);
    let (_client, pid, _) = home.session(None);
    let deaf = Identity::of(pid).unwrap();
    home.set("deaf", 1);
    let answer = restart(&home);
    assert_eq!(answer["type"], "daemon.status", "{answer}");
    assert_ne!(in_charge(&home), before);
    gone(&[deaf]);
}
