//! Streams: whole, cut, stalled, oversized.

use proptest::prelude::*;

use super::*;

/// A response with everything: text with wide characters, reasoning, a call.
fn story() -> (String, Response) {
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"});
    let item =
        |index: u32, item: Value| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    let arguments = r#"{"path": "ü" }"#;
    let message = json!({"type": "message", "content": [{"type": "output_text", "text": "Añ漢🎈!"}]});
    let call = json!({"type": "function_call", "call_id": "c1", "name": "read", "arguments": arguments});
    let mut body = sse(&[json!({"type": "response.created", "response": {}}), item(0, reasoning.clone())]);
    body.push_str(": keep-alive\n\n");
    let mut text = delta("Añ漢");
    text["output_index"] = json!(1);
    body.push_str(&sse(&[text.clone()]).replace('\n', "\r\n"));
    text["delta"] = json!("🎈!");
    let piece = json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": arguments});
    body.push_str(&sse(&[text, item(1, message), piece, item(2, call), completed()]));
    let items = vec![
        Item::Opaque { value: reasoning },
        Item::Assistant { text: "Añ漢🎈!".to_owned() },
        Item::Call { call_id: "c1".to_owned(), name: "read".to_owned(), arguments: arguments.to_owned() },
    ];
    let usage = Usage { input_tokens: Some(7), output_tokens: Some(3), cached_tokens: Some(5) };
    (body, Response { items, usage, incomplete: None })
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn the_same_body_gives_the_same_response_wherever_it_is_cut() {
    let (body, expected) = story();
    block_on(async {
        for at in 1..body.len() {
            let (head, tail) = body.as_bytes().split_at(at);
            let outcome = run(vec![Act::Send(vec![STREAM.into(), head.to_vec(), tail.to_vec()])]).await;
            assert_eq!(outcome.result.unwrap(), expected, "cut at {at}");
            assert_eq!(outcome.text, "Añ漢🎈!", "cut at {at}");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_same_body_gives_the_same_response_in_any_pieces(sizes in prop::collection::vec(1_usize..200, 1..40)) {
        let (body, expected) = story();
        let mut rest = body.as_bytes();
        let mut pieces = vec![STREAM.as_bytes().to_vec()];
        for size in sizes.iter().cycle() {
            let (piece, tail) = rest.split_at(rest.len().min(*size));
            pieces.push(piece.to_vec());
            rest = tail;
            if rest.is_empty() {
                break;
            }
        }
        let outcome = block_on(run(vec![Act::Send(pieces)]));
        prop_assert_eq!(outcome.result.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_request_carries_key_headers_and_version() {
    let outcome = run(vec![stream(&sse(&[completed()]))]).await;
    let request = &outcome.requests[0];
    assert!(request.starts_with("POST /v1/responses HTTP/1.1\r\n"), "{request}");
    for line in
        ["authorization: Bearer very-secret-key", "x-extra: extra-secret", "user-agent: scv/", "\"stream\":true"]
    {
        assert!(request.contains(line), "{line} is not in {request}");
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_is_no_success() {
    for body in [String::new(), sse(&[delta("half")]), format!("{}event: response.comp", sse(&[delta("half")]))] {
        let outcome = run(vec![stream(&body)]).await;
        assert_eq!(outcome.failure(), (ErrorCode::ProviderError, "stream ended before response.completed"));
    }
    let chunked = STREAM.replace("connection: close", "transfer-encoding: chunked");
    let outcome = run(vec![Act::Send(vec![format!("{chunked}10\r\ndata: {{\"ty").into_bytes()])]).await;
    assert_eq!(outcome.failure().1, "stream ended before response.completed");
}

#[tokio::test]
async fn an_incomplete_response_says_why() {
    let last = json!({"type": "response.incomplete", "response": {
        "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}});
    let outcome = run(vec![stream(&sse(&[delta("half"), last]))]).await;
    let response = outcome.result.unwrap();
    assert_eq!(response.incomplete.as_deref(), Some("max_output_tokens"));
    assert_eq!(response.items, [Item::Assistant { text: "half".to_owned() }]);
}

#[tokio::test]
async fn keep_alives_do_not_feed_the_watchdog() {
    for keep_alive in [": keep-alive\n\n", "event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n"] {
        let act = Act::Repeat(format!("{STREAM}{}", sse(&[delta("a")])).into_bytes(), keep_alive.into());
        let outcome = run_with(|settings| settings.event_idle = Duration::from_millis(50), vec![act]).await;
        let expected = "no event from the provider for 0.05 s (`event_idle_seconds`)";
        assert_eq!(outcome.failure(), (ErrorCode::ProviderError, expected));
        assert_eq!(outcome.text, "a");
    }
}

#[tokio::test]
async fn events_do_not_move_the_deadline_of_a_request() {
    let act = Act::Repeat(STREAM.into(), sse(&[delta("a")]).into());
    let outcome = run_with(|settings| settings.timeout = Duration::from_millis(50), vec![act]).await;
    assert_eq!(outcome.failure().1, "no whole response within 0.05 s (`timeout_seconds`)");
}

#[tokio::test]
async fn an_endpoint_that_never_answers_is_given_up() {
    let change = |settings: &mut Settings| settings.event_idle = Duration::from_millis(50);
    let outcome = run_with(change, vec![Act::Hold(Vec::new())]).await;
    assert!(outcome.failure().1.starts_with("no event"), "{}", outcome.failure().1);
}

#[tokio::test]
async fn the_response_ends_with_its_last_event_not_with_the_connection() {
    let outcome = run(vec![Act::Hold(format!("{STREAM}{}", sse(&[completed()])).into_bytes())]).await;
    assert!(outcome.result.is_ok());
}

#[tokio::test]
async fn an_oversized_event_is_a_limit() {
    let endless = [STREAM.as_bytes(), b"data: ", &vec![b'x'; limits::SSE_EVENT_BYTES + 1]].concat();
    let outcome = run(vec![Act::Hold(endless)]).await;
    assert_eq!(outcome.failure(), (ErrorCode::ResponseLimit, "an event of the provider exceeds 1048576 bytes"));
}

#[tokio::test]
async fn an_answer_at_its_limit_passes_whatever_its_escapes_cost() {
    // Each line end is two bytes of JSON, and the last event has the text again.
    let piece = "\n".repeat(limits::ASSISTANT_BYTES / 64);
    let text = piece.repeat(64);
    let message = json!({"type": "message", "content": [{"type": "output_text", "text": text}]});
    let mut events = vec![delta(&piece); 64];
    events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": message}));
    events.push(completed());
    events[65]["response"]["output"] = json!([message]);
    let outcome = run(vec![stream(&sse(&events))]).await;
    assert_eq!(outcome.result.unwrap().items, [Item::Assistant { text }]);
}
