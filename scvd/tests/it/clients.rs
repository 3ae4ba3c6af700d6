//! What a connection is told before it belongs to a worker.

use serde_json::json;

use super::home::{Home, eventually};

#[test]
fn nothing_is_answered_before_initialize() {
    let home = Home::new();
    let _scvd = home.start();
    let mut client = home.connect();
    client.send(&json!({"type": "daemon.control", "request_id": "1", "command": {"action": "status"}}));
    let answer = client.event();
    assert_eq!((&answer["code"], &answer["request_id"]), (&json!("not_initialized"), &json!("1")));
    client.initialize(&[]);
}

#[test]
fn another_version_is_fatal() {
    let home = Home::new();
    let _scvd = home.start();
    let mut client = home.connect();
    client.send(&json!({"type": "initialize", "request_id": "1", "protocol_version": 4, "client": {"name": "t"}}));
    let answer = client.event();
    assert_eq!((&answer["code"], &answer["fatal"]), (&json!("version_mismatch"), &json!(true)));
    assert!(client.is_closed());
}

#[test]
fn bad_lines_are_answered_and_the_connection_goes_on() {
    let home = Home::new();
    let _scvd = home.start();
    let mut client = home.client();
    for (line, code) in [
        ("no json", "invalid_json"),
        ("[]", "invalid_request"),
        (r#"{"type":"from.the.future","request_id":"1"}"#, "invalid_json"),
        (r#"{"type":"daemon.control","request_id":"1"}"#, "invalid_request"),
        (r#"{"type":"daemon.control","request_id":"1","command":{"action":"usage"}}"#, "unsupported"),
        (r#"{"type":"session.pause","request_id":"1","session_id":"x","paused":true}"#, "invalid_request"),
        (&"x".repeat((1 << 20) + 1), "invalid_request"),
    ] {
        client.say(line);
        let answer = client.event();
        assert_eq!(answer["code"], code, "{answer} to {line:.80}");
        assert_eq!(answer["fatal"], false);
    }
    assert_eq!(client.control(&json!({"action": "status"}))["type"], "daemon.status");
}

#[test]
fn a_watcher_gets_a_snapshot_then_what_changes_and_who_crashed() {
    let home = Home::new();
    let _scvd = home.start();
    let (_first, _, first) = home.session(None);
    let mut watcher = home.connect();
    watcher.initialize(&["watch"]);
    let snapshot = watcher.control(&json!({"action": "watch"}));
    assert_eq!(snapshot["type"], "watch.snapshot");
    assert_eq!(snapshot["sessions"][0]["id"], first);

    let (mut second, _, id) = home.session(None);
    let changed = watcher.event();
    assert_eq!((&changed["type"], &changed["set"][0]["id"]), (&json!("watch.changed"), &json!(id)));
    second.say("fail");
    let mut events = vec![watcher.event(), watcher.event()];
    events.sort_by_key(|event| event["type"].as_str().unwrap().to_owned());
    assert_eq!((&events[0]["type"], &events[0]["exit_code"]), (&json!("session.crashed"), &json!(9)), "{events:?}");
    assert_eq!(events[1]["gone"][0], id, "{events:?}");
    // It still answers requests.
    assert_eq!(watcher.control(&json!({"action": "status"}))["type"], "daemon.status");
}

#[test]
fn who_did_not_ask_for_it_cannot_watch() {
    let home = Home::new();
    let _scvd = home.start();
    assert_eq!(home.client().control(&json!({"action": "watch"}))["code"], "invalid_request");
}

#[test]
fn a_session_that_is_stopped_is_closed_and_one_that_is_removed_is_gone() {
    let home = Home::new();
    let _scvd = home.start();
    let (_client, worker, id) = home.session(None);
    let dir = home.layout.session(id.parse().unwrap());
    std::fs::write(dir.meta(), r#"{"cwd":"/somewhere","title":"a title"}"#).unwrap();
    std::fs::write(home.layout.wanted_session(id.parse().unwrap()), "").unwrap();
    let mut client = home.client();
    let answer = client.control(&json!({"action": "session_stop", "session_id": id}));
    assert_eq!(answer["type"], "daemon.status", "{answer}");
    assert!(shared::process::Identity::of(worker).is_err());
    let entry = |all: bool| {
        let answer = home.client().control(&json!({"action": "sessions", "all": all}));
        answer["status"]["sessions"]["entries"].as_array().unwrap().first().cloned()
    };
    let closed = entry(true).unwrap();
    assert_eq!((&closed["state"], &closed["title"]), (&json!("closed"), &json!("a title")));
    assert_eq!(entry(false), None);

    let answer = client.control(&json!({"action": "session_remove", "session_id": id}));
    assert_eq!(answer["type"], "daemon.status", "{answer}");
    assert_eq!(entry(true), None);
    client.attach(&id);
    assert_eq!(client.event()["code"], "session_not_found");
    eventually("an empty trash", || (std::fs::read_dir(home.layout.trash()).unwrap().count() == 0).then_some(()));
    let again = home.client().control(&json!({"action": "session_remove", "session_id": id}));
    assert_eq!(again["code"], "session_not_found");
}
