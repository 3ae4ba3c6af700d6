//! Attaching, detaching and closing, and what several clients of one session are told.

use std::time::{Duration, Instant};

use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::session::{common, seq};
use scv_tests::wire::is_terminal;
use scv_tests::{Attached, TestEnv, Wire, eventually, wait};
use serde_json::{Value, json};

fn running(more: &str) -> (TestEnv, Model) {
    let model = Model::start_blocking();
    let env = TestEnv::new();
    env.configure(&model.url(), more);
    env.start();
    (env, model)
}

fn keep() -> Value {
    json!({"on_disconnect": "keep"})
}

fn state(env: &TestEnv, session: &str) -> String {
    env.session_entry(session).unwrap()["state"].as_str().unwrap().to_owned()
}

#[test]
fn the_last_client_that_goes_closes_its_session_and_all_that_it_runs() {
    let (env, model) = running("");
    let mut wire = Wire::plain(&env);
    // The default of a session that says nothing.
    let session = wire.session(&env, &json!({"auto_approve": true}));
    let second = Attached::to(&env, &session, 0);
    model.push(Reply::new().call("bash", &json!({"command": "setsid sleep 600 & sleep 601"})));
    wire.prompt(&session, "work");
    eventually("it runs", scv_tests::DEADLINE, || env.children().len() >= 3);
    drop(wire);
    assert_eq!(state(&env, &session), "working", "one client is left");
    drop(second);
    // 3 s are promised.
    env.gone_within(Duration::from_secs(4), TestEnv::children);
    eventually("it is closed", scv_tests::DEADLINE, || state(&env, &session) == "closed");
    let attached = Attached::to(&env, &session, 0);
    let ends: Vec<&Value> = attached.events.iter().filter(|event| is_terminal(event)).collect();
    assert_eq!(ends.len(), 1, "{:?}", attached.events);
    drop(attached);
    env.finish();
}

#[test]
fn a_session_that_is_kept_works_on_without_a_client() {
    let (env, model) = running("");
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &keep());
    let gate = Gate::new();
    model.push(Reply::new().delta("one ").stall(&gate).delta("two"));
    wire.prompt(&session, "count");
    wait(gate.reached());
    drop(wire);
    gate.release();
    eventually("its turn ends", scv_tests::DEADLINE, || state(&env, &session) == "idle");
    let attached = Attached::to(&env, &session, 0);
    assert_eq!(attached.events.last().unwrap()["type"], "turn.completed");
    drop(attached);
    env.finish();
}

#[test]
fn detaching_keeps_the_session_and_closing_ends_it() {
    let (env, _model) = running("");
    let mut wire = Wire::connect(&env);
    wire.initialize(&["attach"]);
    let session = wire.session(&env, &json!({}));
    let id = wire.request(json!({"type": "session.detach", "session_id": session}));
    let events = wire.until_closed();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((&events[0]["request_id"], &events[0]["session_id"]), (&json!(id), &json!(session)));
    assert_eq!(state(&env, &session), "idle");
    let mut wire = Attached::to(&env, &session, 0).wire;
    let id = wire.request(json!({"type": "session.close", "session_id": session}));
    let events = wire.until_closed();
    assert_eq!((&events[0]["type"], &events[0]["request_id"]), (&json!("session.closed"), &json!(id)), "{events:?}");
    eventually("it is closed", scv_tests::DEADLINE, || state(&env, &session) == "closed");
    env.finish();
}

#[test]
fn a_half_closed_client_gets_the_end_of_its_turn_and_then_the_end() {
    let (env, model) = running("");
    let gate = Gate::new();
    model.push(Reply::new().delta("a").stall(&gate).delta("b"));
    // The default: the end of the input would close the session, but not before the turn is over.
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({}));
    wire.prompt(&session, "go");
    wire.until_type("assistant.delta");
    wire.close_write();
    assert!(wire.quiet_for(Duration::from_millis(300)), "nothing ends by itself{}", wire.report());
    gate.release();
    let events = wire.until_closed();
    assert_eq!(events.last().unwrap()["type"], "turn.completed", "{events:?}");
    eventually("it is closed", scv_tests::DEADLINE, || state(&env, &session) == "closed");
    env.finish();
}

#[test]
fn each_client_sees_its_own_request_ids_and_those_of_others_by_their_number() {
    let (env, model) = running("");
    let mut first = Wire::plain(&env);
    let session = first.session(&env, &keep());
    let mut second = Attached::to(&env, &session, 0).wire;
    model.script([Reply::text("one"), Reply::text("two")]);
    let own = first.prompt(&session, "mine");
    let mine = first.turn();
    let theirs = second.turn();
    let id = format!("client:1:{own}");
    assert!(mine.iter().all(|event| event["request_id"] == json!(own)), "{mine:?}");
    assert!(theirs.iter().all(|event| event["request_id"] == json!(id)), "{theirs:?}");
    let own = second.prompt(&session, "theirs");
    let id = format!("client:2:{own}");
    assert!(first.turn().iter().all(|event| event["request_id"] == json!(id)));
    assert!(second.turn().iter().all(|event| event["request_id"] == json!(own)));
    // A number is never given twice.
    drop(second);
    let mut third = Attached::to(&env, &session, 0).wire;
    model.push(Reply::text("three"));
    let own = third.prompt(&session, "third");
    assert_eq!(first.turn()[0]["request_id"], format!("client:3:{own}"));
    drop((first, third));
    env.finish();
}

#[test]
fn a_replay_is_bracketed_and_a_running_answer_comes_as_one_piece() {
    let (env, model) = running("");
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &keep());
    model.push(Reply::text("one"));
    wire.prompt(&session, "first");
    let first = wire.turn();
    let gate = Gate::new();
    model.push(Reply::new().deltas(["a", "b", "c"]).stall(&gate).delta("d"));
    wire.prompt(&session, "second");
    wire.until("the third piece", |event| event["content"] == "c");

    let middle = seq(&first[0]).unwrap();
    let mut attached = Attached::to(&env, &session, middle);
    let bracket = (seq_of(&attached.attached, "from_seq"), seq_of(&attached.attached, "to_seq"));
    assert_eq!(bracket.0, middle + 1);
    assert_eq!(attached.attached["state"], "working");
    let numbers: Vec<u64> = attached.events.iter().filter_map(seq).collect();
    assert!(numbers.is_sorted() && numbers[0] > middle && *numbers.last().unwrap() <= bracket.1, "{numbers:?}");
    let deltas: Vec<&Value> = attached.events.iter().filter(|event| event["type"] == "assistant.delta").collect();
    assert_eq!(deltas.len(), 1, "{deltas:?}");
    assert_eq!(deltas[0]["content"], "abc");
    gate.release();
    let live = attached.wire.turn();
    assert!(live.iter().filter_map(seq).all(|number| number > bracket.1), "{live:?}");
    assert_eq!(live[0]["content"], "d");
    assert_eq!(live.iter().map(common).collect::<Vec<_>>(), wire.turn().iter().map(common).collect::<Vec<_>>());
    drop((wire, attached));
    env.finish();
}

fn seq_of(event: &Value, field: &str) -> u64 {
    event[field].as_u64().unwrap_or_else(|| panic!("no {field}: {event}"))
}

#[test]
fn the_same_id_again_attaches_and_an_unknown_one_is_not_found() {
    let (env, model) = running("");
    let id = uuid::Uuid::now_v7().to_string();
    let mut wire = Wire::connect(&env);
    wire.initialize(&["attach"]);
    let mut more = keep();
    more["session_id"] = json!(id);
    assert_eq!(wire.session(&env, &more), id);
    model.push(Reply::text("one"));
    wire.prompt(&id, "first");
    wire.turn();
    let mut again = Wire::connect(&env);
    again.initialize(&["attach"]);
    assert_eq!(again.session(&env, &more), id);
    again.until("what was said", |event| event["type"] == "turn.completed");
    let entries = Wire::plain(&env).control(&json!({"action": "sessions", "all": true}));
    assert_eq!(entries["sessions"]["entries"].as_array().unwrap().len(), 1, "{entries}");

    let mut stranger = Wire::connect(&env);
    stranger.initialize(&["attach"]);
    let unknown = uuid::Uuid::now_v7().to_string();
    let refused = stranger.ask(json!({"type": "session.attach", "session_id": unknown, "after_seq": 0}));
    assert_eq!(refused["code"], "session_not_found", "{refused}");
    drop((wire, again));
    env.finish();
}

#[test]
fn a_hibernated_session_wakes_up_whole() {
    let (env, model) = running("[session]\nhibernate_seconds = 1");
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &keep());
    model.push(Reply::text("one"));
    wire.prompt(&session, "first");
    let told = wire.turn();
    drop(wire);
    eventually("its worker leaves", scv_tests::DEADLINE, || state(&env, &session) == "hibernated");
    let start = Instant::now();
    let mut attached = Attached::to(&env, &session, 0);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(attached.events.last().map(common), told.last().map(common));
    model.push(Reply::text("two"));
    attached.wire.prompt(&session, "second");
    attached.wire.turn();
    let request = Value::from(wait(model.requests()).pop().unwrap().input().to_vec()).to_string();
    assert!(request.contains("first") && request.contains("one") && request.contains("second"), "{request}");
    drop(attached);
    env.finish();
}

#[test]
fn a_session_is_found_by_the_chat_that_it_serves_also_when_it_is_at_rest() {
    let (env, model) = running("");
    let chat = json!({"channel": "a-channel", "account": "default", "conversation": "c-1"});
    let other = json!({"channel": "a-channel", "account": "default", "conversation": "c-2"});
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({"chat": chat}));
    model.push(Reply::text("hello"));
    wire.prompt(&session, "hi");
    wire.turn();
    let found = |chat: &Value| {
        let status = Wire::plain(&env).control(&json!({"action": "sessions", "all": true, "chat": chat}));
        let entries = status["sessions"]["entries"].as_array().unwrap().clone();
        entries.iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(&chat), [session.as_str()]);
    assert_eq!(found(&other), [""; 0]);
    drop(wire);
    eventually("it is closed", scv_tests::DEADLINE, || state(&env, &session) == "closed");
    assert_eq!(found(&chat), [session.as_str()]);
    env.finish();
}
