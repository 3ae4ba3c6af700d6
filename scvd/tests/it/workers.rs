//! Workers that die, and what they leave.

use std::time::{Duration, Instant};

use serde_json::json;
use shared::process::Identity;

use super::home::{Home, eventually, gone, kill};

#[test]
fn everything_of_a_dead_worker_is_ended_at_once_and_the_others_do_not_notice() {
    let home = Home::new();
    let _scvd = home.start();
    let (mut one, worker, _) = home.session(None);
    let (mut other, _, _) = home.session(None);
    let (dying, living) = (one.spawn(), other.spawn());
    let killed = Instant::now();
    kill(worker);
    gone(&dying);
    let took = killed.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert!(living.iter().all(Identity::is_alive));
    other.say("x");
    assert_eq!(other.line(), "heard 1");
    let status = eventually("the count", || Some(home.status()).filter(|s| s["orphans_ended"].as_u64() >= Some(1)));
    assert_eq!(status["sessions"]["live"], 1, "{status}");
    assert_eq!(zombies_of(status["pid"].as_i64().unwrap()), 0);
}

#[test]
fn a_crashed_session_that_has_work_starts_again_until_it_keeps_dying() {
    let home = Home::new();
    let _scvd = home.start();
    let (_client, worker, id) = home.session(None);
    std::fs::write(home.layout.wanted_session(id.parse().unwrap()), "").unwrap();
    home.set("crash", 2);
    kill(worker);
    let state = || {
        let answer = home.client().control(&json!({"action": "sessions", "all": true}));
        answer["status"]["sessions"]["entries"][0]["state"].clone()
    };
    eventually("the end of its tries", || (state() == "failed").then_some(()));
    let status = home.status();
    assert!(
        status["workers"].as_array().unwrap().iter().any(|w| w["role"] == id && w["recent_deaths"] == 3),
        "{status}"
    );
    // Somebody asks.
    let (_client, _, same) = home.session(Some(&id));
    assert_eq!(same, id);
    eventually("the session", || (state() == "idle").then_some(()));
}

#[test]
fn records_of_dead_owners_are_removed_and_those_of_living_ones_are_listed() {
    let home = Home::new();
    let _scvd = home.start();
    let (_client, worker, session) = home.session(None);
    let owner = Identity::of(worker).unwrap();
    let record = |handle: &str, owner: &Identity| {
        let record = json!({
            "handle": handle, "agent": "codex", "session": session, "cwd": "/", "depth": 1, "owner": owner, "started_unix": 1
        });
        std::fs::write(home.layout.delegations().join(format!("{handle}.json")), record.to_string()).unwrap();
    };
    record("codex-000001", &owner);
    record("codex-000002", &Identity { start: owner.start + 1, ..owner.clone() });
    let list = |all: bool| {
        let answer = home.client().control(&json!({"action": "delegations", "all": all}));
        answer["status"]["delegations"]["entries"].as_array().unwrap().len()
    };
    assert_eq!((list(false), list(true)), (1, 2));
    let answer = home.client().control(&json!({"action": "delegation_kill", "orphans": true}));
    assert_eq!(answer["status"]["delegations"]["killed"], json!(["codex-000002"]));
    assert_eq!(list(true), 1);
    let unknown = home.client().control(&json!({"action": "delegation_kill", "handle": "codex-00000f"}));
    assert_eq!(unknown["code"], "delegation_error");
    kill(worker);
    eventually("the record's end", || (list(true) == 0).then_some(()));
}

#[test]
fn an_idle_workers_leave_is_no_crash() {
    let home = Home::new();
    let _scvd = home.start();
    let mut watcher = home.connect();
    watcher.initialize(&["watch"]);
    watcher.control(&json!({"action": "watch"}));
    let (mut client, worker, id) = home.session(None);
    assert_eq!(watcher.event()["set"][0]["id"], id);
    client.say("leave");
    assert_eq!(watcher.event()["gone"][0], id);
    assert!(Identity::of(worker).is_err());
    let answer = home.client().control(&json!({"action": "sessions", "all": false}));
    assert_eq!(answer["status"]["sessions"]["entries"][0]["state"], "hibernated");
}

fn zombies_of(pid: i64) -> usize {
    let children = shared::process::children(i32::try_from(pid).unwrap());
    children.into_iter().filter(|pid| Identity::of(*pid).is_ok_and(|id| !id.is_alive())).count()
}
