//! A client that does not read costs a bound: it holds up nobody, and it misses nothing that is kept.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::session::{common, seq};
use scv_tests::{Attached, TestEnv, Wire, eventually, wait};
use serde_json::{Value, json};

/// What one turn says: far more frames than one client's queue (256) and its socket hold.
const PIECES: usize = 1000;
const PIECE: usize = 600;
const TURNS: usize = 12;

/// The calls of the turn that nobody reads.
const LAST: usize = 3;

/// What one client may cost: its queue of 256 frames, and the allocator's whims. Far below the
/// frames of six turns.
const MEMORY_KIB: u64 = 4 << 10;

/// Attaches and reads nothing; the answer comes into the socket.
fn deaf(env: &TestEnv, session: &str, features: &Value) -> UnixStream {
    let mut stream = env.connect().unwrap();
    let hello = json!({"type": "initialize", "request_id": "1", "protocol_version": 3,
        "client": {"name": "deaf", "version": "1"}, "features": features});
    let attach = json!({"type": "session.attach", "request_id": "2", "session_id": session, "after_seq": 0});
    writeln!(stream, "{hello}\n{attach}").unwrap();
    stream
}

fn clients(env: &TestEnv, session: &str) -> u64 {
    env.session_entry(session).unwrap()["clients"].as_u64().unwrap()
}

/// Everything that a client finds in its socket, up to the end of turn number `turns`.
fn read_all(stream: &mut UnixStream, turns: usize) -> Vec<Value> {
    stream.set_read_timeout(Some(scv_tests::DEADLINE)).unwrap();
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 1 << 20];
    let ends = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.ends_with('\n') && text.matches("\"type\":\"turn.completed\"").count() == turns
    };
    while !ends(&bytes) {
        let read = stream.read(&mut chunk).unwrap();
        assert!(read > 0, "closed");
        bytes.extend_from_slice(&chunk[..read]);
    }
    let text = String::from_utf8(bytes).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn big_answer() -> Reply {
    let piece = "x".repeat(PIECE);
    Reply::new().deltas(vec![piece.as_str(); PIECES])
}

#[test]
fn one_that_can_attach_falls_behind_and_catches_up_from_the_journal() {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    env.start();
    model.answer(|_| Some(big_answer()));
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
    let mut slow = deaf(&env, &session, &json!(["attach"]));
    eventually("it is attached", scv_tests::DEADLINE, || clients(&env, &session) == 2);
    let worker = env.worker_of(&session);
    let mut before = 0;
    let mut told = Vec::new();
    let start = Instant::now();
    for turn in 1..=TURNS {
        wire.prompt(&session, "speak");
        told.extend(wire.turn());
        // So that the conversation is no larger than in the first turn.
        wire.request(json!({"type": "session.clear", "session_id": session}));
        told.extend(wire.collect("the queue", |event| event["type"] == "queue.snapshot"));
        // What a turn takes for itself varies; what a leak takes grows on in the other half.
        if turn <= TURNS / 2 {
            before = before.max(worker.anonymous_kib().unwrap());
        }
    }
    let took = start.elapsed();
    // The one that reads is never held up: a hold-up lasts 30 s.
    assert!(took < Duration::from_secs(28), "{took:?}");
    let after = worker.anonymous_kib().unwrap();
    assert!(after < before + MEMORY_KIB, "{before} KiB, then {after} KiB");

    let seen = read_all(&mut slow, TURNS);
    let is_kept = |event: &&Value| {
        seq(event).is_some() && event["type"] != "assistant.delta" && event["type"] != "session.attached"
    };
    let kept = |events: &[Value]| events.iter().filter(is_kept).map(common).collect::<Vec<_>>();
    assert!(kept(&seen) == kept(&told), "it missed something that is kept");
    assert!(seen.iter().filter(|event| event["type"] == "session.attached").count() >= 2, "its lag is bracketed");
    drop((wire, slow));
    env.finish();
}

#[test]
fn a_plain_one_alone_slows_its_session_down_and_loses_nothing() {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    env.start();
    let gate = Gate::new();
    let piece = "x".repeat(PIECE);
    model.answer(move |request| {
        let calls = request.input().iter().filter(|item| item["type"] == "function_call_output").count();
        let reply = Reply::new().deltas(vec![piece.as_str(); PIECES]);
        let read = json!({"path": "note.txt"}).to_string();
        Some(if calls < LAST {
            reply.call_as(&format!("c-{calls}"), "read", &read)
        } else {
            reply.stall(&gate.clone())
        })
    });
    env.file("note.txt", "the door is blue\n");
    let mut stream = env.connect().unwrap();
    let hello = json!({"type": "initialize", "request_id": "1", "protocol_version": 3,
        "client": {"name": "deaf", "version": "1"}});
    let start = json!({"type": "session.start", "request_id": "2", "cwd": env.work(), "on_disconnect": "keep"});
    writeln!(stream, "{hello}\n{start}").unwrap();
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("queue.snapshot") {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).unwrap();
        said.extend_from_slice(&chunk[..read]);
    }
    let said = String::from_utf8(said).unwrap();
    let id = said.lines().find_map(|line| {
        let event: Value = serde_json::from_str(line).ok()?;
        event["session_id"].as_str().map(str::to_owned)
    });
    let session = id.unwrap();
    let turn = json!({"type": "turn.start", "request_id": "3", "session_id": session, "prompt": "go"});
    writeln!(stream, "{turn}").unwrap();
    // Its queue fills up, and the model is asked no further.
    let asked = || wait(model.requests()).len();
    let mut before = 0;
    eventually("the session waits for its client", scv_tests::DEADLINE, || {
        std::thread::sleep(Duration::from_millis(500));
        let waits = asked() == before && before > 0;
        before = asked();
        waits
    });
    assert!(before <= LAST, "it was held up after {before} requests");
    let cancel = stream.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let mut cancel = cancel;
        let mut total = 0;
        let mut chunk = vec![0; 1 << 20];
        while let Ok(read @ 1..) = cancel.read(&mut chunk) {
            total += read;
        }
        total
    });
    eventually("it goes on when it is read", scv_tests::DEADLINE, || asked() == LAST + 1);
    env.worker_of(&session).kill();
    assert!(reader.join().unwrap() > LAST * PIECES * PIECE);
    drop(stream);
    env.finish();
}

#[test]
fn a_client_that_attached_and_went_away_is_forgotten() {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    env.start();
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
    let worker = env.worker_of(&session);
    let before = worker.descriptors();
    for _ in 0..50 {
        drop(Attached::to(&env, &session, 0));
    }
    eventually("its descriptors are given back", scv_tests::DEADLINE, || worker.descriptors() <= before);
    assert_eq!(clients(&env, &session), 1);
    drop(wire);
    env.finish();
}
