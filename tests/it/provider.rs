//! A model endpoint as it is on its bad days, seen by a client through a whole session.

use std::time::{Duration, Instant};

use scv_tests::fakes::model::{Gate, Model, Reply, Request};
use scv_tests::talk::{failure, of_type, streamed};
use scv_tests::{Talk, TestEnv, wait};
use serde_json::{Value, json};

/// No retry: what comes first is what is told.
const ONCE: &str = "[provider_limits]\nmax_retries = 0";

/// A session whose client sees notices.
fn noticing(more: &str) -> Talk {
    let model = Model::start_blocking();
    let env = TestEnv::new();
    env.configure(&model.url(), more);
    Talk::of(env, model, &["notices"], &json!({}))
}

fn notices(events: &[Value]) -> Vec<String> {
    let texts = of_type(events, "turn.notice");
    texts.iter().map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

/// The next turn of the session is an ordinary one.
#[track_caller]
fn goes_on(talk: &mut Talk) -> Request {
    talk.model.push(Reply::text("still here"));
    let events = talk.turn("go on");
    assert_eq!(events.last().unwrap()["type"], "turn.completed", "{}", talk.wire.report());
    talk.last_request()
}

#[test]
fn an_answer_arrives_whole_however_its_bytes_are_cut() {
    let mut talk = Talk::start();
    let text = "Grüße, 漢字 and 🎈\r\nnext: \u{2028} done \\u00e9 \"quoted\"";
    for bytes in [1, 2, 3, 5, 7, 11, 64, 1000, 1 << 20] {
        talk.model.push(Reply::new().reasoning("hm").deltas(text.split_inclusive(' ')).pieces_of(bytes));
        let events = talk.turn("say it");
        assert_eq!(streamed(&events), text, "in pieces of {bytes} bytes");
        let whole = &of_type(&events, "assistant.completed")[0];
        assert_eq!(whole["content"], text, "in pieces of {bytes} bytes");
        let end = events.last().unwrap();
        assert_eq!((&end["type"], &end["steps"]), (&json!("turn.completed"), &json!(1)));
        assert_eq!((&end["usage"]["input_tokens"], &end["usage"]["output_tokens"]), (&json!(10), &json!(5)));
    }
}

#[test]
fn a_call_arrives_whole_however_its_bytes_are_cut() {
    let mut talk = Talk::start();
    talk.env.file("größe 漢.txt", "inside");
    for bytes in [1, 3, 64, 1000] {
        talk.model.push(Reply::new().call("read", &json!({"path": "größe 漢.txt"})).pieces_of(bytes));
        talk.model.push(Reply::text("read"));
        let results = of_type(&talk.turn("read it"), "tool.completed");
        assert_eq!(results.len(), 1);
        assert!(results[0]["output"].as_str().unwrap().contains("inside"), "{results:?}");
    }
}

#[test]
fn a_retry_is_seen_by_who_asked_for_notices() {
    let mut talk = noticing("");
    talk.model.script([
        Reply::error("429 Too Many Requests", "rate_limit_exceeded", "slow down").header("retry-after", "0"),
        Reply::error("503 Service Unavailable", "server_error", "busy").header("retry-after", "0"),
        Reply::text("at last"),
    ]);
    let events = talk.turn("hello");
    let said = notices(&events);
    assert_eq!(said.len(), 2, "{said:?}");
    for (notice, words) in said.iter().zip([["429", "(1 of 2)"], ["503", "(2 of 2)"]]) {
        assert!(words.iter().all(|word| notice.contains(word)), "{notice}");
    }
    assert_eq!(streamed(&events), "at last");
    // A notice is no part of the conversation.
    assert!(!Value::from(goes_on(&mut talk).input().to_vec()).to_string().contains("trying again"));
}

#[test]
fn a_plain_client_gets_the_answer_after_a_retry_and_nothing_it_does_not_know() {
    let mut talk = Talk::start();
    talk.model.push(Reply::hang_up());
    talk.model.push(Reply::text("second try"));
    // Each frame is read strictly.
    assert_eq!(streamed(&talk.turn("hello")), "second try");
    assert_eq!(wait(talk.model.requests()).len(), 2);
}

#[test]
fn retry_after_is_waited_for() {
    let mut talk = noticing("");
    talk.model.push(Reply::status("429 Too Many Requests").header("retry-after", "1"));
    talk.model.push(Reply::text("ok"));
    let events = talk.turn("hello");
    assert!(notices(&events)[0].contains("trying again in 1."), "{events:?}");
    let asked = wait(talk.model.requests());
    let waited = asked[1].at.duration_since(asked[0].at).unwrap();
    assert!(waited >= Duration::from_millis(950) && waited < Duration::from_secs(5), "{waited:?}");
}

#[test]
fn a_wait_beyond_a_minute_is_left_to_the_person() {
    let mut talk = Talk::start();
    talk.model.push(Reply::status("429 Too Many Requests").header("retry-after", "3600"));
    let (_, message) = failure(&talk.turn("hello"));
    assert!(message.contains("3600 s"), "{message}");
    assert_eq!(wait(talk.model.requests()).len(), 1);
}

#[test]
fn retries_end_and_the_sentence_counts_them() {
    let mut talk = Talk::start();
    for _ in 0..3 {
        talk.model.push(Reply::status("500 Internal Server Error").header("retry-after", "0"));
    }
    let (code, message) = failure(&talk.turn("hello"));
    assert_eq!(code, "provider_error");
    assert!(message.contains("500") && message.contains("after 2 retries"), "{message}");
    assert_eq!(talk.model.unused(), 0);
    goes_on(&mut talk);
}

#[test]
fn nothing_is_sent_again_once_something_was_shown() {
    let mut talk = Talk::start();
    for reply in [Reply::new().delta("half an ans").cut(), Reply::new().delta("half").failed("server_error", "oh")] {
        let before = wait(talk.model.requests()).len();
        talk.model.push(reply);
        let events = talk.turn("hello");
        assert_eq!(failure(&events).0, "provider_error");
        assert!(streamed(&events).starts_with("half"));
        assert_eq!(wait(talk.model.requests()).len(), before + 1);
    }
}

#[test]
fn a_stream_that_is_cut_leaves_the_prompt_and_the_reason_in_the_history() {
    let mut talk = Talk::configured(ONCE);
    for reply in [
        Reply::new().delta("well").cut(),
        Reply::new().delta("well").cut_in_character(),
        Reply::new().delta("well").without_completed(),
        Reply::new().cut(),
        Reply::hang_up(),
    ] {
        talk.model.push(reply);
        assert_eq!(failure(&talk.turn("the door is blue")).0, "provider_error");
        let asked = goes_on(&mut talk);
        let history = asked.input();
        let place = history.iter().rposition(|item| item.to_string().contains("the door is blue"));
        assert!(history[place.unwrap() + 1].to_string().contains("The turn failed"), "{history:#?}");
    }
}

#[test]
fn keep_alive_comments_do_not_hide_a_model_that_is_silent() {
    let mut talk = Talk::configured("[provider_limits]\nevent_idle_seconds = 1");
    let gate = Gate::new();
    talk.model.push(Reply::new().delta("I think").comments_until(Duration::from_millis(50), &gate));
    let start = Instant::now();
    let (code, message) = failure(&talk.turn("hello"));
    assert_eq!(code, "provider_error");
    assert!(message.contains("no event") && message.contains("event_idle_seconds"), "{message}");
    assert!(start.elapsed() >= Duration::from_secs(1) && start.elapsed() < Duration::from_secs(8));
    wait(gate.left());
    goes_on(&mut talk);
}

#[test]
fn an_endpoint_that_accepts_and_says_nothing_is_noticed() {
    let mut talk = Talk::configured("[provider_limits]\nevent_idle_seconds = 1\nmax_retries = 0");
    let gate = Gate::new();
    talk.model.push(Reply::garbage("").stall(&gate));
    assert!(failure(&talk.turn("hello")).1.contains("no event"));
    wait(gate.left());
}

#[test]
fn a_model_that_is_slow_but_alive_is_not_cut() {
    let mut talk = Talk::configured("[provider_limits]\nevent_idle_seconds = 1");
    let reply = (0..6).fold(Reply::new(), |reply, _| reply.delta("a ").pause(Duration::from_millis(400)));
    talk.model.push(reply);
    assert_eq!(streamed(&talk.turn("hello")), "a ".repeat(6));
}

#[test]
fn a_request_has_a_limit_in_all() {
    let mut talk = Talk::configured("timeout_seconds = 1");
    let gate = Gate::new();
    let reply = (0..40).fold(Reply::new(), |reply, _| reply.delta("a ").pause(Duration::from_millis(100)));
    talk.model.push(reply.stall(&gate));
    let start = Instant::now();
    let (_, message) = failure(&talk.turn("hello"));
    assert!(message.contains("within 1 s") && message.contains("timeout_seconds"), "{message}");
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[test]
fn garbage_fails_the_turn_and_not_the_session() {
    let mut talk = Talk::configured(ONCE);
    let garbage: &[&[u8]] = &[
        b"",
        b"\x00\xff\xfe\x80\x00",
        b"\xef\xbb\xbf\xef\xbb\xbfdata",
        b"data: not json\n\n",
        b"data: []\n\ndata: 7\n\n",
        b"data: {\"type\":\"response.output_text.delta\",\"delta\":7}\n\n",
        b"data: {\"type\":\"response.completed\",\"response\":\"x\"}\n\n",
        b"event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":-1}\n\n",
        b"data: {\"type\":\"response.output_text.delta\",\"output_index\":4294967295,\"delta\":\"x\"}\n\n",
        b"\n\n\n\n\r\n\r\n:::::\n\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ];
    for bytes in garbage {
        talk.model.push(Reply::garbage(*bytes));
        let (code, message) = failure(&talk.turn("hello"));
        assert_eq!(code, "provider_error", "{:?}: {message}", String::from_utf8_lossy(bytes));
        assert!(!message.contains("panicked") && !message.contains("internal"), "{message}");
    }
    goes_on(&mut talk);
}

#[test]
fn a_page_instead_of_a_stream_names_its_kind_and_the_key_to_check() {
    let mut talk = Talk::start();
    talk.model.push(Reply::html());
    let (_, message) = failure(&talk.turn("hello"));
    assert!(message.contains("text/html") && message.contains("base_url"), "{message}");
    assert!(!message.contains("Please sign in"), "{message}");
}

#[test]
fn nobody_at_the_endpoint_is_said_with_its_address() {
    let env = TestEnv::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    env.configure(&format!("http://{free}/v1"), ONCE);
    let mut talk = Talk::of(env, Model::start_blocking(), &[], &json!({}));
    let (code, message) = failure(&talk.turn("hello"));
    assert_eq!(code, "provider_error");
    assert!(message.contains(&free.to_string()) && message.contains("base_url"), "{message}");
}
