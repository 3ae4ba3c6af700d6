//! Every limit of the protocol on prompts and responses: what is at it passes, what is over it is
//! refused, and nothing of a refused response is executed.

use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::talk::{failure, of_type, streamed};
use scv_tests::{Talk, TestEnv, wait};
use serde_json::{Value, json};
use shared::protocol::limits;

/// A session that approves everything: what is not executed was not asked for either.
fn approving() -> Talk {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    Talk::of(env, model, &[], &json!({"auto_approve": true}))
}

/// A call of `write` that makes the file `name` with `bytes` bytes of arguments.
fn write_call(name: &str, bytes: usize) -> String {
    let around = json!({"path": name, "mode": "create", "content": ""}).to_string().len();
    let arguments = json!({"path": name, "mode": "create", "content": "x".repeat(bytes.saturating_sub(around))});
    arguments.to_string()
}

fn files(talk: &Talk) -> usize {
    std::fs::read_dir(talk.env.work()).unwrap().count()
}

/// `reply` ends the turn with `code`; none of its calls is even proposed, and the session goes on.
#[track_caller]
fn refused(talk: &mut Talk, reply: Reply, code: &str) {
    talk.model.push(reply);
    let events = talk.turn("go");
    assert_eq!(failure(&events).0, code, "{}", talk.wire.report());
    assert_eq!(of_type(&events, "tool.proposed"), Vec::<Value>::new());
    assert_eq!(files(talk), 0, "nothing was executed");
    talk.model.push(Reply::text("still here"));
    assert_eq!(streamed(&talk.turn("go on")), "still here");
    let history = Value::from(talk.last_request().input().to_vec()).to_string();
    assert!(
        !history.contains("function_call"),
        "nothing of it is in the history: {}",
        &history[..history.len().min(2000)]
    );
}

#[test]
fn a_response_has_at_most_32_calls() {
    let calls = |count: usize| {
        (0..count).fold(Reply::new().delta("now"), |reply, n| {
            reply.call_as(&format!("call_{n}"), "write", &write_call(&format!("f{n}"), 80))
        })
    };
    let mut talk = approving();
    refused(&mut talk, calls(33), "tool_limit");
    talk.model.push(calls(32));
    talk.model.push(Reply::text("done"));
    let events = talk.turn("go");
    assert_eq!(of_type(&events, "tool.completed").len(), 32);
    assert_eq!(files(&talk), 32);
}

#[test]
fn a_call_has_at_most_256_kib_of_arguments() {
    const LIMIT: usize = 256 << 10;
    let mut talk = approving();
    let call = |bytes| Reply::new().call_as("call_0", "write", &write_call("f", bytes));
    refused(&mut talk, call(LIMIT + 1), "tool_limit");
    // One bad call spoils the response, wherever it stands.
    let good_first = Reply::new().call_as("call_0", "write", &write_call("g", 100));
    refused(&mut talk, good_first.call_as("call_1", "write", &write_call("f", LIMIT + 1)), "tool_limit");
    talk.model.push(call(LIMIT));
    talk.model.push(Reply::text("done"));
    talk.turn("go");
    assert_eq!(files(&talk), 1);
}

#[test]
fn a_response_has_at_most_4_mib_of_text_and_arguments() {
    let mut talk = approving();
    let each = 255 << 10;
    let calls = |count: usize| {
        (0..count).fold(Reply::new(), |reply, n| {
            reply.call_as(&format!("call_{n}"), "write", &write_call(&format!("f{n}"), each))
        })
    };
    let fitting = limits::RESPONSE_BYTES / each;
    refused(&mut talk, calls(fitting + 1), "response_limit");
    talk.model.push(calls(fitting));
    talk.model.push(Reply::text("done"));
    talk.turn("go");
    assert_eq!(files(&talk), fitting);
}

#[test]
fn an_answer_has_at_most_1_mib_of_text_in_whatever_wire_bytes() {
    let mut talk = approving();
    // Escaped as JSON it takes six times as much: the limit counts the text.
    let piece = "\u{1}".repeat(1 << 10);
    let pieces = limits::ASSISTANT_BYTES / piece.len();
    refused(&mut talk, Reply::new().deltas(vec![piece.as_str(); pieces]).delta("x"), "response_limit");
    talk.model.push(Reply::new().deltas(vec![piece.as_str(); pieces]));
    let events = talk.turn("go");
    assert_eq!(events.last().unwrap()["type"], "turn.completed");
    assert_eq!(streamed(&events).len(), limits::ASSISTANT_BYTES);
    assert_eq!(of_type(&events, "assistant.completed")[0]["content"].as_str().unwrap().len(), limits::ASSISTANT_BYTES);
}

#[test]
fn a_provider_s_event_has_at_most_1_mib() {
    let mut talk = approving();
    // An event may repeat what came before it, which here is next to nothing.
    refused(&mut talk, Reply::new().oversized(limits::SSE_EVENT_BYTES + (4 << 10)), "response_limit");
    // Also one whose end never comes, and one line that never ends.
    refused(&mut talk, Reply::garbage("data: x\n".repeat(300_000)), "response_limit");
    refused(&mut talk, Reply::garbage(vec![b'x'; 3 << 20]), "response_limit");
}

#[test]
fn lower_limits_of_the_configuration_are_the_limits_in_force() {
    let mut talk = Talk::configured("[provider_limits]\nmax_tool_calls = 1\nmax_tool_arguments_bytes = 64");
    let call = |reply: Reply, id: &str| reply.call_as(id, "read", "{\"path\":\"a\"}");
    refused(&mut talk, call(call(Reply::new(), "call_0"), "call_1"), "tool_limit");
    refused(
        &mut talk,
        Reply::new().call_as("call_0", "read", &format!("{{\"path\":\"{}\"}}", "a".repeat(60))),
        "tool_limit",
    );
    talk.model.push(call(Reply::new(), "call_0"));
    talk.model.push(Reply::text("done"));
    assert_eq!(of_type(&talk.turn("go"), "tool.completed").len(), 1);
}

#[test]
fn a_prompt_has_at_most_256_kib() {
    let mut talk = approving();
    let answer = |talk: &mut Talk, bytes: usize| {
        let prompt = "é".repeat(bytes / 2) + &"x".repeat(bytes % 2);
        talk.wire.ask(json!({"type": "turn.start", "session_id": talk.session, "prompt": prompt}))
    };
    let refused = answer(&mut talk, limits::PROMPT_BYTES + 1);
    assert_eq!((&refused["type"], &refused["code"]), (&json!("error"), &json!("invalid_request")));
    assert!(refused["message"].as_str().unwrap().contains("256 KiB"), "{refused}");
    assert_eq!(wait(talk.model.requests()).len(), 0);
    talk.model.push(Reply::text("long"));
    assert_eq!(answer(&mut talk, limits::PROMPT_BYTES)["type"], "turn.started");
    talk.wire.turn();
    assert_eq!(talk.last_request().prompt().len(), limits::PROMPT_BYTES);
}

#[test]
fn an_edited_prompt_has_the_same_limit() {
    let mut talk = approving();
    let gate = Gate::new();
    talk.model.push(Reply::new().delta("a").stall(&gate));
    talk.wire.prompt(&talk.session.clone(), "first");
    talk.wire.until_type("assistant.delta");
    talk.wire.prompt(&talk.session.clone(), "second");
    let entry = talk.wire.until_type("queue.enqueued")["entry"].clone();
    let update = |prompt: String| {
        json!({"type": "queue.update", "session_id": talk.session, "queue_id": entry["queue_id"],
            "revision": entry["revision"], "prompt": prompt})
    };
    let refused = talk.wire.ask(update("x".repeat(limits::PROMPT_BYTES + 1)));
    assert_eq!(refused["code"], "invalid_request", "{refused}");
    let refused = talk.wire.ask(update(" \n".to_owned()));
    assert_eq!(refused["code"], "invalid_request", "an empty prompt: {refused}");
    gate.release();
}

#[test]
fn a_prompt_has_at_most_16_attachments() {
    let mut talk = approving();
    let path = talk.env.file("a.txt", "text");
    let prompt = |count: usize| {
        let one = json!({"kind": "file", "path": path, "size": 4});
        json!({"type": "turn.start", "session_id": talk.session, "prompt": "see", "attachments": vec![one; count]})
    };
    let (at_the_limit, over) = (prompt(limits::ATTACHMENTS), prompt(limits::ATTACHMENTS + 1));
    let refused = talk.wire.ask(over);
    assert_eq!(refused["code"], "invalid_request");
    assert!(refused["message"].as_str().unwrap().contains("16"), "{refused}");
    talk.model.push(Reply::text("seen"));
    assert_eq!(talk.wire.ask(at_the_limit)["type"], "turn.started");
    talk.wire.turn();
}

#[test]
fn an_attachment_that_is_no_file_is_refused_and_nothing_is_kept() {
    let mut talk = approving();
    let fifo = talk.env.work().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [json!(fifo), json!("/dev/zero"), json!(talk.env.work()), json!("a.txt"), json!("/nope"), json!("")] {
        let files = json!([{"kind": "file", "path": path, "size": 1}]);
        let answer = talk
            .wire
            .ask(json!({"type": "turn.start", "session_id": talk.session, "prompt": "see", "attachments": files}));
        assert_eq!(
            (&answer["type"], &answer["code"]),
            (&json!("error"), &json!("invalid_request")),
            "{path}: {answer}"
        );
    }
    let kept = talk.env.layout().session(talk.session.parse().unwrap()).attachments();
    assert_eq!(std::fs::read_dir(kept).map_or(0, Iterator::count), 0);
    assert_eq!(wait(talk.model.requests()).len(), 0);
}

#[test]
fn sixty_four_prompts_wait_and_the_next_is_refused() {
    let mut talk = approving();
    let gate = Gate::new();
    talk.model.push(Reply::new().delta("a").stall(&gate));
    let ask = |n: usize| json!({"type": "turn.start", "session_id": talk.session, "prompt": format!("prompt {n}")});
    assert_eq!(talk.wire.ask(ask(0))["type"], "turn.started");
    for n in 1..=limits::QUEUED_PROMPTS {
        let answer = talk.wire.ask(ask(n));
        assert_eq!((&answer["type"], &answer["position"]), (&json!("queue.enqueued"), &json!(n - 1)));
    }
    let refused = talk.wire.ask(ask(65));
    assert_eq!((&refused["type"], &refused["code"]), (&json!("error"), &json!("queue_limit")), "{refused}");
    // All that were accepted run, in order.
    talk.model.script((0..limits::QUEUED_PROMPTS).map(|_| Reply::text("ok")));
    gate.release();
    for _ in 0..=limits::QUEUED_PROMPTS {
        talk.wire.turn();
    }
    let asked = wait(talk.model.requests());
    let prompts: Vec<String> = asked.iter().map(scv_tests::fakes::model::Request::prompt).collect();
    assert_eq!(prompts, (0..=limits::QUEUED_PROMPTS).map(|n| format!("prompt {n}")).collect::<Vec<_>>());
}
