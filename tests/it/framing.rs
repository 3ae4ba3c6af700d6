//! Bytes that are no frame, and frames at the limits: each gets an answer, and the connection goes on.

use scv_tests::{TestEnv, Wire};
use serde_json::{Value, json};
use shared::protocol::limits::CLIENT_FRAME_BYTES;

/// Runs `claim` over each transport, after the handshake, and checks that the connection still works.
fn over_each_transport(claim: impl Fn(&mut Wire)) {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start();
    for mut wire in [Wire::connect(&env), Wire::server(&env), Wire::worker(&env)] {
        wire.initialize(&[]);
        claim(&mut wire);
        wire.session(&env, &json!({}));
        claim(&mut wire);
        let session = wire.ask(json!({"type": "session.start", "cwd": env.work()}));
        assert_eq!(session["code"], "invalid_request", "the connection still answers: {session}");
    }
    env.finish();
}

#[track_caller]
fn answered_with(wire: &mut Wire, bytes: &[u8], code: &str) {
    wire.send_bytes(bytes).unwrap();
    let answer = wire.event();
    let got = (answer["type"].clone(), answer["code"].clone(), answer["fatal"].clone());
    assert_eq!(got, (json!("error"), json!(code), json!(false)), "{answer}");
}

#[test]
fn what_is_no_json_object_is_answered() {
    over_each_transport(|wire| {
        for line in ["hello\n", "{\"type\":\n", "[]\n", "7\n", "\"initialize\"\n", "null\n", "{}\n", "{\"type\":7}\n"] {
            wire.send_bytes(line.as_bytes()).unwrap();
            let answer = wire.event();
            assert_eq!(answer["type"], "error", "{line:?}: {answer}");
            assert!(["invalid_json", "invalid_request"].contains(&answer["code"].as_str().unwrap()), "{answer}");
        }
    });
}

#[test]
fn binary_bytes_are_answered() {
    over_each_transport(|wire| {
        answered_with(wire, b"\x00\x01\xfe\xff\x80\n", "invalid_json");
        answered_with(wire, b"{\"type\":\"turn.start\",\"prompt\":\"\xff\xfe\"}\n", "invalid_json");
    });
}

#[test]
fn deep_nesting_is_answered() {
    over_each_transport(|wire| {
        let deep = format!("{{\"type\":\"x\",\"a\":{}1{}}}\n", "[".repeat(100_000), "]".repeat(100_000));
        answered_with(wire, deep.as_bytes(), "invalid_json");
    });
}

#[test]
fn a_line_over_the_limit_is_answered_once_and_skipped() {
    over_each_transport(|wire| {
        let mut line = vec![b'x'; CLIENT_FRAME_BYTES + 1];
        line.push(b'\n');
        answered_with(wire, &line, "invalid_request");
        let mut huge = vec![b'x'; 3 * CLIENT_FRAME_BYTES];
        huge.push(b'\n');
        answered_with(wire, &huge, "invalid_request");
    });
}

#[test]
fn a_line_at_the_limit_is_read() {
    over_each_transport(|wire| {
        let head = "{\"type\":\"weather.forecast\",\"request_id\":\"at-the-limit\",\"pad\":\"";
        let pad = "x".repeat(CLIENT_FRAME_BYTES - head.len() - 2);
        wire.send_bytes(format!("{head}{pad}\"}}\n").as_bytes()).unwrap();
        let answer = wire.event();
        assert_eq!((&answer["code"], &answer["request_id"]), (&json!("invalid_json"), &json!("at-the-limit")));
    });
}

#[test]
fn a_frame_may_come_byte_by_byte_and_several_at_once() {
    over_each_transport(|wire| {
        let line = b"{\"type\":\"weather.forecast\",\"request_id\":\"slow\"}\n";
        for byte in line {
            wire.send_bytes(std::slice::from_ref(byte)).unwrap();
        }
        assert_eq!(wire.event()["request_id"], "slow");
        wire.send_bytes(&line.repeat(3)).unwrap();
        for _ in 0..3 {
            assert_eq!(wire.event()["request_id"], "slow");
        }
    });
}

#[test]
fn a_frame_ends_at_a_newline_only_and_a_carriage_return_is_dropped() {
    over_each_transport(|wire| {
        wire.send_bytes("{\"type\":\"weather.forecast\",\"request_id\":\"a\u{2028}b\u{2029}c\u{85}d\"}\r\n".as_bytes())
            .unwrap();
        let answer = wire.event();
        assert_eq!(
            (&answer["code"], &answer["request_id"]),
            (&json!("invalid_json"), &json!("a\u{2028}b\u{2029}c\u{85}d"))
        );
        // Empty lines are nothing.
        wire.send_bytes(b"\n\r\n\n{\"type\":\"weather.forecast\",\"request_id\":\"e\"}\n").unwrap();
        assert_eq!(wire.event()["request_id"], "e");
    });
}

#[test]
fn half_a_line_at_the_end_is_dropped() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start();
    for mut wire in [Wire::connect(&env), Wire::server(&env), Wire::worker(&env)] {
        wire.initialize(&[]);
        wire.send_bytes(b"{\"type\":\"weather.forecast\",\"request_id\":\"half\"}").unwrap();
        wire.close_write();
        assert_eq!(wire.until_closed(), Vec::<Value>::new());
    }
    env.finish();
}

#[test]
fn a_prompt_over_the_limit_is_refused_and_the_session_goes_on() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start();
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({}));
    let prompt = "x".repeat(shared::protocol::limits::PROMPT_BYTES + 1);
    let answer = wire.ask(json!({"type": "turn.start", "session_id": session, "prompt": prompt}));
    assert_eq!(answer["code"], "invalid_request");
    let paused = wire.request(json!({"type": "session.pause", "session_id": session, "paused": true}));
    wire.until("the pause", |event| event["type"] == "queue.snapshot" && event["paused"] == json!(true));
    drop(paused);
    env.finish();
}
