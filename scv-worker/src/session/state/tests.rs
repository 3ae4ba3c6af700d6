use serde_json::json;
use shared::protocol::SessionId;

use super::*;

fn prompt(queue_id: &str, prompt_id: Option<Uuid>) -> Record {
    Record::Prompt(Prompt {
        at: 1,
        queue_id: queue_id.into(),
        prompt_id,
        request_id: "client:3:r".into(),
        submitter: "test".into(),
        text: format!("do {queue_id}"),
        attachments: Vec::new(),
    })
}

fn begin(queue_id: &str) -> Record {
    Record::Begin { at: 2, turn_id: format!("turn-{queue_id}"), queue_id: queue_id.into() }
}

fn turn(seq: u64, body: TurnBody) -> Record {
    let event = TurnEvent {
        body,
        request_id: "client:3:r".into(),
        session_id: SessionId::from(Uuid::nil()),
        turn_id: "turn-a".into(),
        seq,
    };
    Record::Turn { at: 3, event }
}

fn session(seq: u64, body: SessionBody) -> Record {
    let event = SessionEvent { body, request_id: None, session_id: SessionId::from(Uuid::nil()), seq };
    Record::Session { at: 3, event }
}

fn call(call_id: &str) -> Item {
    Item::Call { call_id: call_id.into(), name: "bash".into(), arguments: "{}".into() }
}

fn response(items: Vec<Item>) -> Record {
    Record::Response { items, usage: Usage { input_tokens: Some(5), ..Usage::default() } }
}

fn completed(seq: u64, call_id: &str) -> Record {
    turn(
        seq,
        TurnBody::ToolCompleted(ToolCompleted {
            call_id: call_id.into(),
            name: "bash".into(),
            success: true,
            output: "done".into(),
            truncated: false,
            error: None,
            jobs: Vec::new(),
            duration_ms: None,
        }),
    )
}

fn failed(seq: u64) -> Record {
    turn(seq, TurnBody::Failed { code: ErrorCode::SessionCrashed, message: "m".into(), origin: None })
}

fn whole_turn() -> Vec<Record> {
    vec![
        prompt("a", None),
        begin("a"),
        turn(1, TurnBody::Started { origin: None }),
        response(vec![Item::Opaque { value: json!({"type": "reasoning"}) }, call("1"), call("2")]),
        turn(2, TurnBody::AssistantCompleted { content: String::new() }),
        completed(3, "1"),
        completed(4, "2"),
        response(vec![Item::Assistant { text: "all done".into() }]),
        turn(5, TurnBody::AssistantCompleted { content: "all done".into() }),
        turn(6, TurnBody::Completed { steps: 2, usage: Usage::default(), origin: None }),
    ]
}

#[test]
fn a_death_after_any_record_leaves_no_call_without_a_result() {
    let records = whole_turn();
    for cut in 0..=records.len() {
        let mut state = State::fold(&records[..cut]);
        let ran = state.turn.is_some();
        if ran {
            state.apply(&failed(90));
        }
        let calls: Vec<_> = state.items.iter().filter(|item| matches!(***item, Item::Call { .. })).collect();
        let outputs: Vec<_> = state.items.iter().filter(|item| matches!(***item, Item::Output { .. })).collect();
        assert_eq!(calls.len(), outputs.len(), "after {cut} records");
        assert!(state.turn.is_none());
        let notes = state.items.iter().filter(|item| matches!(***item, Item::Note { .. })).count();
        assert_eq!(notes, usize::from(ran), "an interruption is noted once, after {cut} records");
    }
}

#[test]
fn a_finished_turn_leaves_the_conversation_as_the_provider_needs_it() {
    let state = State::fold(&whole_turn());
    let items: Vec<Item> = state.items.iter().map(|item| (**item).clone()).collect();
    assert_eq!(
        items,
        [
            Item::User { text: "do a".into() },
            Item::Opaque { value: json!({"type": "reasoning"}) },
            call("1"),
            call("2"),
            Item::Output { call_id: "1".into(), output: "done".into() },
            Item::Output { call_id: "2".into(), output: "done".into() },
            Item::Assistant { text: "all done".into() },
        ]
    );
    assert_eq!(state.usage.input_tokens, Some(10));
    assert_eq!((state.seq, state.last_client), (6, 3));
}

#[test]
fn queue_operations_are_folded_as_they_were_told() {
    let entry = |id: &str, revision, text: &str| QueueEntry {
        queue_id: id.into(),
        revision,
        prompt: text.into(),
        submitter: "test".into(),
        attachments: Vec::new(),
    };
    let state = State::fold(&[
        prompt("a", None),
        prompt("b", None),
        prompt("c", None),
        session(1, SessionBody::QueueMoved { entry: entry("c", 2, "do c"), position: 0 }),
        session(2, SessionBody::QueueUpdated { entry: entry("a", 2, "do A") }),
        session(3, SessionBody::QueueRemoved { queue_id: "b".into() }),
    ]);
    let queue: Vec<_> = state.queue.iter().map(|q| (q.prompt.text.as_str(), q.revision)).collect();
    assert_eq!(queue, [("do c", 2), ("do A", 2)]);
}

#[test]
fn a_known_prompt_has_the_outcome_of_its_first_turn() {
    let id = Uuid::from_u128(7);
    let mut records = vec![prompt("a", Some(id)), begin("a"), turn(1, TurnBody::Started { origin: None })];
    assert!(State::fold(&records).known(&id).unwrap().outcome.is_none());
    records.push(turn(2, TurnBody::Cancelled {}));
    assert_eq!(State::fold(&records).known(&id).unwrap().outcome.as_ref().unwrap().seq, 2);
}

#[test]
fn a_snapshot_stands_for_all_that_was_before_it() {
    let records = whole_turn();
    let state = State::fold(&records);
    let mut kept: Vec<Record> = records.into_iter().filter(|r| matches!(r, Record::Turn { .. })).collect();
    kept.push(Record::Snapshot { state: Box::new(state.clone()) });
    let lines: Vec<String> = kept.iter().map(|record| serde_json::to_string(record).unwrap()).collect();
    let read: Vec<Record> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(State::fold(&read), state);
}

#[test]
fn numbers_go_on_above_the_ceiling_after_a_death() {
    let mut state = State::fold(&[Record::Ceiling { seq: SEQ_STEP }, turn(5, TurnBody::Started { origin: None })]);
    state.skip_to_ceiling();
    assert_eq!(state.seq, SEQ_STEP);
}

#[test]
fn request_ids_of_clients_are_told_apart() {
    assert_eq!(client_number("client:12:a:b"), Some(12));
    assert_eq!(client_number("background:1"), None);
    assert_eq!(client_number("client:x:a"), None);
}
