//! Connections on their way to a worker.

use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::json;
use shared::process::Identity;

use super::home::{Home, eventually, gone};

#[test]
fn a_session_gets_the_spare_with_every_byte_and_a_new_spare_follows() {
    let home = Home::new();
    let _scvd = home.start();
    let spare = home.wait_for_spare();
    let mut client = home.connect();
    let start = json!({"type": "session.start", "request_id": "s", "cwd": "/"}).to_string();
    let initialize = json!({"type": "initialize", "request_id": "i", "protocol_version": 3, "client": {"name": "t"}});
    // All at once, with half a line behind it.
    client.stream.write_all(format!("{initialize}\n{start}\nfirst\nhalf").as_bytes()).unwrap();
    assert_eq!(client.event()["type"], "initialized");
    let line = client.line();
    assert!(line.ends_with(&format!(" {}", start.len() + 1 + "first\nhalf".len())), "{line}");
    assert!(line.starts_with(&format!("pid {spare} ")), "{line}");
    assert_eq!(client.line(), format!("heard {}", start.len()));
    assert_eq!(client.line(), "heard 5");
    client.say(" done");
    assert_eq!(client.line(), "heard 9");
    assert_ne!(home.wait_for_spare(), spare);
}

#[test]
fn the_same_id_again_reaches_the_same_worker_also_at_the_same_time() {
    let home = Home::new();
    home.config("[supervisor]\nspare_workers = 0\n");
    let _scvd = home.start();
    let id = shared::protocol::SessionId::new().to_string();
    let mut clients: Vec<_> = (0..4).map(|_| home.client()).collect();
    for client in &mut clients {
        client.start(Some(&id));
    }
    let served: Vec<_> = clients.iter_mut().map(super::home::Client::served).collect();
    assert!(served.iter().all(|one| *one == served[0]), "{served:?}");
}

#[test]
fn a_worker_that_does_not_answer_is_ended_and_the_next_one_takes_the_client() {
    let home = Home::new();
    let _scvd = home.start();
    let silent = Identity::of(home.wait_for_spare()).unwrap();
    home.set("silent", 1);
    let started = Instant::now();
    let (_client, worker, _) = home.session(None);
    assert_ne!(worker, silent.pid);
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    gone(&[silent]);
}

#[test]
fn when_no_worker_answers_the_client_is_told_and_stays_connected() {
    let home = Home::new();
    let _scvd = home.start();
    home.wait_for_spare();
    home.set("silent", 2);
    let mut client = home.client();
    client.start(None);
    let answer = client.event();
    assert_eq!(
        (&answer["code"], &answer["request_id"], &answer["fatal"]),
        (&json!("unavailable"), &json!("s"), &json!(false))
    );
    client.start(None);
    client.served();
}

#[test]
fn a_refusal_reaches_the_client_with_its_reason() {
    let home = Home::new();
    let _scvd = home.start();
    home.wait_for_spare();
    home.set("refuse", 1);
    let mut client = home.client();
    client.start(None);
    let answer = client.event();
    assert_eq!((&answer["code"], &answer["message"]), (&json!("session_busy"), &json!("as I was told")));
    client.start(None);
    client.served();
}

#[test]
fn a_worker_that_dies_of_its_session_is_tried_twice_and_then_told() {
    let home = Home::new();
    let _scvd = home.start();
    home.set("crash", 2);
    let mut client = home.client();
    client.start(None);
    assert_eq!(client.event()["code"], "unavailable");
    client.start(None);
    client.served();
}

#[test]
fn a_client_that_comes_while_the_worker_leaves_gets_another_one() {
    let home = Home::new();
    let _scvd = home.start();
    let (mut client, worker, session) = home.session(None);
    client.say("leave");
    let (_other, next, same) = home.session(Some(&session));
    assert_eq!(same, session);
    // Either it was told before it left, or the next one serves it; never nobody.
    eventually("the leaver's end", || (next == worker || Identity::of(worker).is_err()).then_some(()));
}

#[test]
fn attaching_to_what_is_not_there_is_an_error_and_to_what_hibernates_is_not() {
    let home = Home::new();
    let _scvd = home.start();
    let id = shared::protocol::SessionId::new();
    let mut client = home.client();
    client.attach(&id.to_string());
    assert_eq!(client.event()["code"], "session_not_found");
    shared::fs::private_dir(home.layout.session(id).path()).unwrap();
    client.attach(&id.to_string());
    assert_eq!(client.served().1, id.to_string());
}

#[test]
fn there_are_no_more_sessions_than_allowed() {
    let home = Home::new();
    home.config("[supervisor]\nmax_sessions = 2\n");
    let _scvd = home.start();
    let (_one, _, first) = home.session(None);
    let _two = home.session(None);
    let mut third = home.client();
    third.start(None);
    assert_eq!(third.event()["code"], "session_limit");
    home.session(Some(&first));
}

#[test]
fn a_broken_worker_program_is_said_and_not_tried_for_ever() {
    let home = Home::new();
    home.set("deaf", 1000);
    let _scvd = home.start();
    let mut client = home.client();
    client.start(None);
    let answer = client.event();
    assert_eq!(answer["code"], "unavailable", "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("did not say hello"), "{answer}");
}
