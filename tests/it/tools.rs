//! What holds for every tool: checked arguments, one at a time, nothing of progress in the history,
//! and no tool at all in a session that has none.

use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::talk::of_type;
use scv_tests::{Talk, TestEnv, wait};
use serde_json::{Value, json};

/// Plays a call with arguments as they are; its `tool.completed`.
#[track_caller]
fn raw_call(talk: &mut Talk, name: &str, arguments: &str) -> Value {
    talk.model.push(Reply::new().call_as("call_raw", name, arguments));
    talk.model.push(Reply::text("done"));
    let events = talk.turn("call");
    assert_eq!(events.last().unwrap()["type"], "turn.completed", "{}", talk.wire.report());
    assert_eq!(of_type(&events, "tool.proposed").len(), 1);
    of_type(&events, "tool.completed").remove(0)
}

#[test]
fn arguments_that_are_no_json_object_are_refused_and_the_model_is_told() {
    let mut talk = Talk::start();
    let bad = [
        "",
        " ",
        "{",
        "not json",
        "[]",
        "7",
        "null",
        "\"path\"",
        "{\"path\":\"a\"} trailing",
        "{\"path\":7}",
        "{\"path\":\"a\",\"colour\":1}",
        "{\"path\":\"a\",\"offset\":-1}",
        "{\"path\":\"a\",\"offset\":1e99}",
        "{\"path\":\"\\ud800\"}",
        "{\"command\":\"ls\",\"timeout_seconds\":\"9\"}",
    ];
    let deep = format!("{{\"path\":{}1{}}}", "[".repeat(2000), "]".repeat(2000));
    for arguments in bad.into_iter().chain([deep.as_str()]) {
        for name in ["read", "write", "bash"] {
            let result = raw_call(&mut talk, name, arguments);
            assert_eq!(
                (&result["success"], &result["error"]),
                (&json!(false), &json!("invalid_arguments")),
                "{arguments}: {result}"
            );
            let text = result["output"].as_str().unwrap();
            assert!(!text.is_empty() && text.len() < 1000, "{arguments}: {text}");
            assert_eq!(talk.last_request().last_output(), Some(text));
        }
    }
}

#[test]
fn a_tool_that_does_not_exist_names_those_that_do() {
    let mut talk = Talk::start();
    for name in ["rm", "Read", "read ", "web_search", "../read", "漢字"] {
        let result = raw_call(&mut talk, name, "{}");
        assert_eq!(result["error"], "unknown_tool", "{name:?}: {result}");
        assert!(["read", "write", "bash"].iter().all(|tool| result["output"].as_str().unwrap().contains(tool)));
    }
}

#[test]
fn a_call_s_arguments_go_back_to_the_model_byte_for_byte() {
    let mut talk = Talk::start();
    let arguments = "{ \"path\" :  \"\\u0061\" , \"limit\":1.0e1 }";
    raw_call(&mut talk, "read", arguments);
    let asked = talk.last_request();
    let call = asked.input().iter().find(|item| item["type"] == "function_call").unwrap();
    assert_eq!(call["arguments"], arguments);
}

#[test]
fn calls_of_one_response_run_one_after_the_other() {
    let mut talk = Talk::approving("");
    // Each writes when it begins and when it ends; had two overlapped, the ledger would say so.
    let call = |n: u32| json!({"command": format!("echo begin {n} >>ledger; sleep 0.1; echo end {n} >>ledger")});
    let reply = (0..4).fold(Reply::new(), |reply, n| reply.call("bash", &call(n)));
    talk.model.push(reply.call("read", &json!({"path": "ledger"})));
    talk.model.push(Reply::text("done"));
    let events = talk.turn("go");
    let ledger = std::fs::read_to_string(talk.env.work().join("ledger")).unwrap();
    assert_eq!(ledger, "begin 0\nend 0\nbegin 1\nend 1\nbegin 2\nend 2\nbegin 3\nend 3\n");
    let order: Vec<&str> = events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .filter(|kind| matches!(*kind, "tool.proposed" | "tool.started" | "tool.completed"))
        .collect();
    let expected: Vec<&str> =
        ["tool.proposed"; 5].into_iter().chain(["tool.started", "tool.completed"].repeat(5)).collect();
    assert_eq!(order, expected);
    // And the last one saw what the ones before it did.
    assert!(of_type(&events, "tool.completed")[4]["output"].as_str().unwrap().contains("end 3"));
}

#[test]
fn a_later_call_waits_for_the_approval_of_an_earlier_one() {
    let mut talk = Talk::start();
    let write = |name: &str| json!({"path": name, "mode": "create", "content": "x"});
    talk.model.push(Reply::new().call("write", &write("first")).call("write", &write("second")));
    talk.model.push(Reply::text("done"));
    talk.wire.prompt(&talk.session.clone(), "go");
    let first = talk.wire.until_type("approval.requested");
    assert!(first["summary"].as_str().unwrap().contains("first"));
    assert!(talk.wire.quiet_for(std::time::Duration::from_millis(200)), "one question at a time");
    talk.wire.resolve(&first, false);
    let second = talk.wire.until_type("approval.requested");
    talk.wire.resolve(&second, true);
    let results = of_type(&talk.wire.turn(), "tool.completed");
    assert_eq!((results.len(), &results[0]["success"]), (1, &json!(true)));
    assert!(!talk.env.work().join("first").exists() && talk.env.work().join("second").exists());
}

#[test]
fn progress_is_bounded_and_in_no_history_and_no_journal() {
    let mut talk = Talk::approving("[tools]\noutput_limit_bytes = 1024");
    let command =
        "for n in $(seq 1 30); do echo \"line $n of progress $(head -c 300 /dev/zero | tr '\\0' x)\"; sleep 0.05; done";
    talk.model.push(Reply::new().call("bash", &json!({"command": command})));
    talk.model.push(Reply::text("done"));
    let events = talk.turn("go");
    let place = |kind: &str| events.iter().position(|event| event["type"] == kind);
    let progress = of_type(&events, "tool.progress");
    let took = of_type(&events, "tool.completed")[0]["duration_ms"].as_u64().unwrap();
    let most = usize::try_from(took / 500).unwrap() + 2;
    assert!((1..=most).contains(&progress.len()), "at most one in half a second: {} in {took} ms", progress.len());
    for event in &progress {
        let text = event["text"].as_str().unwrap();
        assert!(text.len() <= 512 && text.lines().all(|line| line.len() <= 200), "{text}");
    }
    let (first, last) =
        (place("tool.progress").unwrap(), events.iter().rposition(|e| e["type"] == "tool.progress").unwrap());
    assert!(place("tool.started").unwrap() < first && last < place("tool.completed").unwrap());
    // The middle was progress and is in no result, so it is nowhere else either.
    let middle = "line 15 of progress";
    assert!(!of_type(&events, "tool.completed")[0].to_string().contains(middle));
    assert!(!Value::from(talk.last_request().input().to_vec()).to_string().contains(middle));
    let journal = std::fs::read_to_string(talk.env.layout().session(talk.session.parse().unwrap()).journal()).unwrap();
    assert!(!journal.contains("tool.progress") && !journal.contains(middle));
}

#[test]
fn a_session_without_tools_offers_none_and_runs_none() {
    let model = Model::start_blocking();
    let env = TestEnv::new();
    env.configure(&model.url(), "[web]\nsearch = \"provider\"");
    env.file("a", "text");
    let more = json!({"no_tools": true, "auto_approve": true, "system_prompt": "You are a door."});
    let mut talk = Talk::of(env, model, &[], &more);
    let calls = [
        ("bash", json!({"command": "touch made"})),
        ("read", json!({"path": "a"})),
        ("write", json!({"path": "made", "mode": "create", "content": "x"})),
        ("agent", json!({"agent": "codex", "prompt": "x"})),
    ];
    for (name, arguments) in calls {
        let result = talk.call(name, &arguments);
        assert_eq!(result["error"], "unknown_tool", "{result}");
    }
    assert!(!talk.env.work().join("made").exists());
    for asked in wait(talk.model.requests()) {
        let tools = asked.body.get("tools").and_then(Value::as_array).map_or(0, Vec::len);
        assert_eq!(tools, 0, "{}", asked.body);
        let body = asked.body.to_string();
        assert!(!body.contains("web_search"), "{body}");
        assert!(body.contains("You are a door."));
    }
}

#[test]
fn a_session_with_tools_offers_each_once_with_its_schema() {
    let mut talk = Talk::start();
    talk.model.push(Reply::text("hello"));
    talk.turn("hi");
    let asked = talk.last_request();
    let mut names = asked.tools();
    assert!(["read", "write", "bash"].iter().all(|name| names.contains(name)), "{names:?}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), asked.tools().len(), "no name twice");
    for tool in asked.body["tools"].as_array().unwrap() {
        assert_eq!(tool["type"], "function");
        assert!(tool["description"].as_str().is_some_and(|text| text.len() > 40), "{tool}");
        let parameters = &tool["parameters"];
        assert_eq!(
            (&parameters["type"], &parameters["additionalProperties"]),
            (&json!("object"), &json!(false)),
            "{tool}"
        );
    }
}

#[test]
fn a_cancelled_turn_runs_nothing_more_and_every_call_has_a_result() {
    let mut talk = Talk::approving("");
    let gate = Gate::new();
    let reply = Reply::new().call("bash", &json!({"command": "touch running; sleep 600"}));
    talk.model.push(reply.call("bash", &json!({"command": "touch second"})));
    talk.wire.prompt(&talk.session.clone(), "go");
    let started = talk.wire.until_type("tool.started");
    scv_tests::eventually("it runs", scv_tests::DEADLINE, || talk.env.work().join("running").exists());
    talk.wire.request(json!({"type": "turn.cancel", "session_id": talk.session, "turn_id": started["turn_id"]}));
    let events = talk.wire.turn();
    assert_eq!(events.last().unwrap()["type"], "turn.cancelled");
    assert_eq!(of_type(&events, "tool.completed")[0]["error"], "cancelled");
    assert!(!talk.env.work().join("second").exists());
    talk.model.push(Reply::new().stall(&gate).delta("ok"));
    gate.release();
    talk.turn("go on");
    let asked = talk.last_request();
    for call in asked.input().iter().filter(|item| item["type"] == "function_call") {
        assert!(asked.output(call["call_id"].as_str().unwrap()).is_some(), "{call} has no result");
    }
}
