use serde_json::json;
use shared::protocol::server::Usage;

use super::*;
use crate::provider::failure::Report;

fn assembly() -> Assembly {
    Assembly::new(&Settings::new("test", "http://localhost"))
}

fn text(index: u32, delta: &str) -> Event {
    Event::Text { index, delta: delta.to_owned() }
}

fn done(index: u32, item: Value) -> Event {
    Event::Done { index, item }
}

fn message(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

fn function_call(id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "read", "arguments": arguments})
}

fn call(id: &str, arguments: &str) -> Item {
    Item::Call { call_id: id.to_owned(), name: "read".to_owned(), arguments: arguments.to_owned() }
}

fn said(text: &str) -> Item {
    Item::Assistant { text: text.to_owned() }
}

/// Adds `events` and the last one; returns the text to show and the response.
fn whole(events: Vec<Event>, output: Vec<Value>) -> Result<(String, Response), Failure> {
    let mut assembly = assembly();
    let mut shown = String::new();
    for event in events.into_iter().chain([Event::Finished(Finished { output, ..Finished::default() })]) {
        let added = assembly.add(event)?;
        shown.push_str(&added.text.unwrap_or_default());
        if let Some(response) = added.finished {
            return Ok((shown, response));
        }
    }
    unreachable!("the last event ends the response")
}

fn refusal(assembly: &mut Assembly, events: impl IntoIterator<Item = Event>) -> (ErrorCode, String) {
    let refused = events.into_iter().find_map(|event| assembly.add(event).err());
    match refused {
        Some(Failure::TooMuch(code, message)) => (code, message),
        other => panic!("no limit was reached: {other:?}"),
    }
}

#[test]
fn items_come_in_the_order_of_their_index() {
    let reasoning = json!({"type": "reasoning", "encrypted_content": "gAAA"});
    let events = vec![
        text(1, "a"),
        text(1, "b"),
        done(2, function_call("c1", "{}")),
        done(1, message("ab")),
        done(0, reasoning.clone()),
    ];
    let (shown, response) = whole(events, vec![message("ignored: every item came already")]).unwrap();
    assert_eq!(shown, "ab");
    assert_eq!(response.items, [Item::Opaque { value: reasoning }, said("ab"), call("c1", "{}")]);
}

#[test]
fn a_server_that_streams_no_items_loses_nothing() {
    let (shown, response) = whole(vec![], vec![message("hi"), function_call("c1", "{}")]).unwrap();
    assert_eq!((shown.as_str(), response.items), ("hi", vec![said("hi"), call("c1", "{}")]));
    let (shown, response) = whole(vec![text(0, "only deltas")], vec![]).unwrap();
    assert_eq!((shown.as_str(), response.items), ("only deltas", vec![said("only deltas")]));
    let (shown, response) = whole(vec![done(0, message("no deltas"))], vec![]).unwrap();
    assert_eq!((shown.as_str(), response.items), ("no deltas", vec![said("no deltas")]));
}

#[test]
fn text_of_a_last_event_is_counted_and_shown_once() {
    let (shown, response) = whole(vec![text(0, "hi")], vec![message("hi")]).unwrap();
    assert_eq!((shown.as_str(), response.items), ("hi", vec![said("hi")]));
}

#[test]
fn items_with_the_same_index_are_all_kept() {
    let events = vec![done(0, function_call("c1", "1")), done(0, function_call("c2", "2"))];
    let (_, response) = whole(events, vec![]).unwrap();
    assert_eq!(response.items, [call("c1", "1"), call("c2", "2")]);
}

#[test]
fn calls_that_cannot_be_told_apart_or_named_are_garbage() {
    let twice = vec![done(0, function_call("c1", "1")), done(1, function_call("c1", "2"))];
    assert!(matches!(whole(twice, vec![]), Err(Failure::Garbage(_))));
    let nameless = vec![done(0, json!({"type": "function_call", "call_id": "c1", "arguments": "{}"}))];
    assert!(matches!(whole(nameless, vec![]), Err(Failure::Garbage(_))));
}

#[test]
fn a_call_that_was_cut_off_is_never_run() {
    let mut item = function_call("c1", "{\"path\": \"/et");
    item["status"] = json!("incomplete");
    let mut assembly = assembly();
    assembly.add(done(0, item)).unwrap();
    let incomplete = Some("max_output_tokens".to_owned());
    let usage = Usage { output_tokens: Some(3), ..Usage::default() };
    let last = Finished { incomplete: incomplete.clone(), usage, ..Finished::default() };
    let response = assembly.add(Event::Finished(last)).unwrap().finished.unwrap();
    assert_eq!(response, Response { items: vec![], usage, incomplete });
}

#[test]
fn a_refusal_is_text() {
    let item = json!({"type": "message", "content": [{"type": "refusal", "refusal": "no"}]});
    let (shown, response) = whole(vec![text(0, "no"), done(0, item)], vec![]).unwrap();
    assert_eq!((shown.as_str(), response.items), ("no", vec![said("no")]));
}

#[test]
fn a_reported_failure_ends_the_response() {
    let report = Report { code: "server_error".to_owned(), message: "oh".to_owned() };
    let failed = assembly().add(Event::Failed(report.clone()));
    assert!(matches!(failed, Err(Failure::Reported(reported)) if reported == report));
}

#[test]
fn text_is_limited_also_without_deltas() {
    let half = "x".repeat(limits::ASSISTANT_BYTES / 2);
    let (code, _) = refusal(&mut assembly(), [text(0, &half), text(0, &half), text(0, "x")]);
    assert_eq!(code, ErrorCode::ResponseLimit);
    let whole = message(&"x".repeat(limits::ASSISTANT_BYTES + 1));
    assert_eq!(refusal(&mut assembly(), [done(0, whole)]).0, ErrorCode::ResponseLimit);
}

#[test]
fn text_at_its_limit_is_allowed_although_it_comes_twice() {
    let limit = "x".repeat(limits::ASSISTANT_BYTES);
    let (_, response) = whole(vec![text(0, &limit), done(0, message(&limit))], vec![message(&limit)]).unwrap();
    assert_eq!(response.items, [said(&limit)]);
}

#[test]
fn calls_are_limited_in_number_and_size() {
    let max = 32;
    let calls = (0..=max).map(|n| done(n, function_call(&format!("c{n}"), "{}")));
    let (code, message) = refusal(&mut assembly(), calls);
    assert_eq!((code, message.contains("max_tool_calls")), (ErrorCode::ToolLimit, true));
    let begun = (0..=max).map(|index| Event::CallAdded { index });
    assert_eq!(refusal(&mut assembly(), begun).0, ErrorCode::ToolLimit);

    let bytes = 256 << 10;
    let pieces = [Event::Arguments { index: 0, bytes }, Event::Arguments { index: 0, bytes: 1 }];
    let (code, message) = refusal(&mut assembly(), pieces);
    assert_eq!((code, message.contains("max_tool_arguments_bytes")), (ErrorCode::ToolLimit, true));
    let whole = function_call("c1", &"x".repeat(bytes + 1));
    assert_eq!(refusal(&mut assembly(), [done(0, whole)]).0, ErrorCode::ToolLimit);
}

#[test]
fn text_and_arguments_are_limited_together() {
    let bytes = 256 << 10;
    let limit = u32::try_from(limits::RESPONSE_BYTES / bytes).unwrap();
    let calls = (1..=limit).map(|index| Event::Arguments { index, bytes });
    let (code, _) = refusal(&mut assembly(), [text(0, "x")].into_iter().chain(calls));
    assert_eq!(code, ErrorCode::ResponseLimit);
}

#[test]
fn what_no_limit_names_is_bounded_too() {
    let reasoning = json!({"type": "reasoning", "encrypted_content": "x".repeat(1 << 20)});
    let items = (0..5).map(|index| done(index, reasoning.clone()));
    assert_eq!(refusal(&mut assembly(), items).0, ErrorCode::ResponseLimit);
    let empty = (0..2000).map(|index| text(index, ""));
    assert_eq!(refusal(&mut assembly(), empty).0, ErrorCode::ResponseLimit);
}
