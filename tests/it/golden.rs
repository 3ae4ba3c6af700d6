//! The wire as released: every golden frame is read by today's types, written back as it was, and
//! those for everybody are read by a strict client of version 3. Golden frames are only added.

use std::collections::BTreeSet;

use scv_tests::{golden, strict};
use serde_json::{Value, json};
use shared::protocol::{ServerEvent, client};

#[test]
fn a_clients_frame_is_read_and_written_as_it_was() {
    for frame in golden::frames("client") {
        let message = client::parse(frame.to_string().as_bytes()).unwrap_or_else(|bad| panic!("{bad:?}: {frame}"));
        let mut again = serde_json::to_value(&message).unwrap();
        // A null and a missing field say the same here.
        if frame.get("before_queue_id").is_none() {
            again.as_object_mut().unwrap().retain(|name, value| name != "before_queue_id" || !value.is_null());
        }
        assert_eq!(again, frame);
    }
}

#[test]
fn a_servers_frame_is_read_and_written_as_it_was() {
    for frame in golden::frames("server").into_iter().chain(golden::frames("server-features")) {
        let event: ServerEvent = serde_json::from_value(frame.clone()).unwrap_or_else(|bad| panic!("{bad}: {frame}"));
        assert!(!matches!(event, ServerEvent::Unknown(_)), "an unknown type: {frame}");
        assert_eq!(serde_json::to_value(&event).unwrap(), frame);
        assert_eq!(event.seq(), frame["seq"].as_u64());
    }
}

#[test]
fn a_strict_client_of_version_3_reads_every_frame_that_is_for_everybody() {
    for frame in golden::frames("server") {
        assert_eq!(strict::refuses(&frame), None, "{frame}");
    }
}

#[test]
fn every_type_for_everybody_has_a_golden_frame() {
    let there: BTreeSet<String> =
        golden::frames("server").iter().map(|frame| frame["type"].as_str().unwrap().to_owned()).collect();
    let wanted: BTreeSet<String> = strict::types().into_iter().map(str::to_owned).collect();
    assert_eq!(there, wanted);
}

#[test]
fn what_only_features_bring_takes_no_number() {
    for frame in golden::frames("server-features") {
        assert_eq!(frame.get("seq"), None, "{frame}");
        if frame["type"] != "initialized" {
            assert!(strict::refuses(&frame).is_some(), "a plain client may get this: {frame}");
        }
    }
}

#[test]
fn a_strict_client_refuses_what_it_should() {
    let good = json!({"type": "turn.cancelled", "request_id": "r", "session_id": "s", "turn_id": "t", "seq": 1});
    assert_eq!(strict::refuses(&good), None);
    let with = |name: &str, value: Value| {
        let mut bad = good.clone();
        bad[name] = value;
        strict::refuses(&bad)
    };
    assert!(with("type", json!("turn.vanished")).is_some());
    assert!(with("seq", json!("1")).is_some());
    assert!(with("seq", Value::Null).is_some());
    assert!(with("extra", json!(1)).is_some());
}

#[test]
fn a_frame_of_a_newer_server_is_kept_as_it_is() {
    let frame = json!({"type": "weather.changed", "request_id": null, "to": "rain"});
    assert_eq!(serde_json::from_value::<ServerEvent>(frame.clone()).unwrap(), ServerEvent::Unknown(frame));
}
