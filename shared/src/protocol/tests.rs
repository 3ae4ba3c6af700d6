use proptest::prelude::*;

use super::frame::{Decoder, Frame};
use super::server::{Reply, TurnBody};
use super::*;

fn frames(decoder: &mut Decoder) -> Vec<Frame> {
    std::iter::from_fn(|| decoder.next()).collect()
}

#[test]
fn a_frame_ends_only_at_a_newline() {
    let mut decoder = Decoder::new(100);
    decoder.push("a\u{2028}b\r\n\nc".as_bytes());
    assert_eq!(frames(&mut decoder), [Frame::Line("a\u{2028}b".as_bytes().to_vec())]);
    assert_eq!(decoder.into_rest(), b"c");
}

#[test]
fn a_line_over_the_limit_is_told_once_and_skipped() {
    let mut decoder = Decoder::new(4);
    decoder.push(b"12345");
    assert_eq!(frames(&mut decoder), [Frame::TooLong]);
    decoder.push(b"more and more");
    assert_eq!(frames(&mut decoder), []);
    assert_eq!(decoder.pending_bytes(), 0);
    decoder.push(b"end\n1234\n");
    assert_eq!(frames(&mut decoder), [Frame::Line(b"1234".to_vec())]);
}

proptest! {
    #[test]
    fn frames_do_not_depend_on_how_the_bytes_arrive(
        text in "[a-c\\n\\r]{0,60}",
        cuts in prop::collection::vec(0_usize..60, 0..6),
    ) {
        let mut whole = Decoder::new(5);
        whole.push(text.as_bytes());
        let expected = frames(&mut whole);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).collect();
        cuts.sort_unstable();
        cuts.push(text.len());
        let mut pieces = Decoder::new(5);
        let mut got = Vec::new();
        let mut from = 0;
        for cut in cuts {
            pieces.push(&text.as_bytes()[from..cut]);
            got.extend(frames(&mut pieces));
            from = cut;
        }
        prop_assert_eq!(got, expected);
    }

    #[test]
    fn no_bytes_break_the_parser(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = client::parse(&bytes);
        let _ = serde_json::from_slice::<ServerEvent>(&bytes);
    }
}

#[test]
fn an_unknown_message_keeps_its_request_id() {
    let bad = client::parse(br#"{"type":"from.the.future","request_id":"r1"}"#).unwrap_err();
    assert_eq!((bad.request_id.as_deref(), bad.code), (Some("r1"), ErrorCode::InvalidJson));
    let bad = client::parse(br#"{"type":"turn.cancel","request_id":"r2"}"#).unwrap_err();
    assert_eq!((bad.request_id.as_deref(), bad.code), (Some("r2"), ErrorCode::InvalidRequest));
    let bad = client::parse(b"{\"type\":").unwrap_err();
    assert_eq!((bad.request_id, bad.code), (None, ErrorCode::InvalidJson));
}

#[test]
fn a_reason_never_quotes_the_line() {
    let line = br#"{"type":"initialize","request_id":"r","protocol_version":"sk-secret","client":{"name":"x"}}"#;
    assert!(!client::parse(line).unwrap_err().reason.contains("sk-secret"));
}

#[test]
fn events_of_a_newer_server_are_unknown_and_their_codes_too() {
    let event: ServerEvent = serde_json::from_str(r#"{"type":"brand.new","x":1}"#).unwrap();
    assert!(matches!(event, ServerEvent::Unknown(_)));
    let event: ServerEvent = serde_json::from_str(r#"{"type":"error","code":"brand_new","message":"m"}"#).unwrap();
    let ServerEvent::Reply(Reply::Error(error)) = event else { panic!("{event:?}") };
    assert_eq!(error.code, ErrorCode::Unknown);
}

#[test]
fn a_turn_event_is_one_flat_object() {
    let event = ServerEvent::Turn(server::TurnEvent {
        body: TurnBody::AssistantDelta { content: "hi".into() },
        request_id: "r".into(),
        session_id: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
        turn_id: "t".into(),
        seq: 4,
    });
    let line = event.to_line();
    assert_eq!(
        String::from_utf8_lossy(&line),
        "{\"type\":\"assistant.delta\",\"content\":\"hi\",\"request_id\":\"r\",\
         \"session_id\":\"01890a5d-ac96-774b-bcce-b302099a8057\",\"turn_id\":\"t\",\"seq\":4}\n"
    );
    assert_eq!(serde_json::from_slice::<ServerEvent>(&line).unwrap(), event);
}

#[test]
fn the_risks_are_the_five_of_the_contract() {
    use server::Risk;
    let risks = [
        (Risk::ReadOnly, "read_only"),
        (Risk::Filesystem, "filesystem"),
        (Risk::Process, "process"),
        (Risk::Delegate, "delegate"),
        (Risk::Network, "network"),
    ];
    for (risk, word) in risks {
        assert_eq!(serde_json::to_value(risk).unwrap(), word);
        assert_eq!(serde_json::from_value::<Risk>(word.into()).unwrap(), risk);
    }
    assert_eq!(serde_json::from_value::<Risk>("telepathy".into()).unwrap(), Risk::Unknown);
}
