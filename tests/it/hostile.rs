//! Lines that no client would send, by the thousand: whatever they say, each is answered or
//! ignored, nothing panics, and the session still works afterwards.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use scv_tests::fakes::model::{Model, Reply};
use scv_tests::{TestEnv, Wire};
use serde_json::{Value, json};

/// Every type that a client may send, and some that it may not.
const TYPES: &[&str] = &[
    "initialize",
    "session.start",
    "session.attach",
    "session.detach",
    "session.close",
    "session.clear",
    "session.pause",
    "turn.start",
    "turn.cancel",
    "approval.resolve",
    "queue.update",
    "queue.move",
    "queue.remove",
    "daemon.control",
    "session.started",
    "turn.completed",
    "",
    "\u{0}",
];

/// Every field of theirs.
const FIELDS: &[&str] = &[
    "request_id",
    "session_id",
    "protocol_version",
    "client",
    "features",
    "cwd",
    "provider",
    "model",
    "base_url",
    "no_tools",
    "delegation_depth",
    "channel",
    "auto_approve",
    "chat",
    "system_prompt",
    "on_disconnect",
    "title",
    "resume",
    "after_seq",
    "prompt",
    "attachments",
    "prompt_id",
    "turn_id",
    "approval_id",
    "approved",
    "queue_id",
    "revision",
    "before_queue_id",
    "paused",
    "command",
    "type",
];

/// A line, to which the test adds what only it knows.
#[derive(Clone, Debug)]
enum Line {
    Message {
        kind: &'static str,
        fields: Vec<(&'static str, Odd)>,
    },
    Bytes(Vec<u8>),
    /// A valid message with its end cut off.
    Half(&'static str, usize),
}

/// A value of a field.
#[derive(Clone, Debug)]
enum Odd {
    Value(Value),
    /// The session's own id.
    Session,
    /// The workspace.
    Workspace,
}

fn odd() -> impl Strategy<Value = Odd> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,40}".prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "/",
            "..",
            "\u{0}",
            "\u{feff}",
            "\u{202e}",
            "%s%n",
            "close",
            "keep",
            "3",
            "01a22e78-08a4-70ea-85bf-3f701f510e9a",
            "client:1:r1",
            "client:99999999999999999999:x",
            "background:1"
        ])
        .prop_map(Value::from),
        Just(json!("x".repeat(70_000))),
    ];
    let nested = leaf.clone().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(FIELDS), inner), 0..4)
                .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Value>()),
        ]
    });
    let command = json!({"action": "session_stop", "session_id": "01a22e78-08a4-70ea-85bf-3f701f510e9a"});
    prop_oneof![
        4 => leaf.prop_map(Odd::Value),
        2 => nested.prop_map(Odd::Value),
        3 => Just(Odd::Session),
        1 => Just(Odd::Workspace),
        1 => Just(Odd::Value(json!([{"kind": "file", "path": "/dev/zero", "size": u64::MAX}]))),
        1 => Just(Odd::Value(command)),
    ]
}

fn line() -> impl Strategy<Value = Line> {
    let fields = prop::collection::vec((prop::sample::select(FIELDS), odd()), 0..8);
    let message = (prop::sample::select(TYPES), fields).prop_map(|(kind, fields)| Line::Message { kind, fields });
    prop_oneof![
        10 => message,
        1 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Line::Bytes),
        1 => (prop::sample::select(TYPES), 0_usize..40).prop_map(|(kind, cut)| Line::Half(kind, cut)),
    ]
}

impl Line {
    fn bytes(&self, number: usize, session: &str, work: &Value) -> Vec<u8> {
        match self {
            Self::Message { kind, fields } => {
                // What a real message has, so that an odd value reaches what reads it.
                let mut message = json!({"type": kind, "request_id": format!("odd-{number}"), "session_id": session,
                    "turn_id": "t", "queue_id": "q", "revision": 1, "prompt": "hello", "approval_id": "a",
                    "approved": true, "paused": false, "command": {"action": "status"}});
                for (name, odd) in fields {
                    message[*name] = match odd {
                        Odd::Value(value) => value.clone(),
                        Odd::Session => json!(session),
                        Odd::Workspace => work.clone(),
                    };
                }
                // These two end the session, as they should.
                let ends = ["session.detach", "session.close"];
                if message["session_id"] == json!(session) && ends.iter().any(|kind| message["type"] == json!(kind)) {
                    message["session_id"] = json!("x");
                }
                message.to_string().into_bytes()
            }
            Self::Bytes(bytes) => bytes.iter().copied().filter(|byte| *byte != b'\n').collect(),
            Self::Half(kind, cut) => {
                let whole =
                    json!({"type": kind, "request_id": "half", "session_id": session, "prompt": "hello"}).to_string();
                whole.as_bytes()[..whole.len().saturating_sub(1 + cut)].to_vec()
            }
        }
    }
}

/// A worker on standard streams with a session, which every batch shares: what one batch breaks,
/// the next one shows.
struct Worker {
    wire: Wire,
    session: String,
    work: Value,
    batches: usize,
}

impl Worker {
    /// Sends a batch and a last message; everything up to the answer to that one.
    fn play(&mut self, lines: &[Line]) -> Vec<Value> {
        self.batches += 1;
        let sentinel = format!("sentinel-{}", self.batches);
        let mut bytes = Vec::new();
        for (number, line) in lines.iter().enumerate() {
            bytes.extend(line.bytes(self.batches * 1000 + number, &self.session, &self.work));
            bytes.push(b'\n');
        }
        self.wire.send_bytes(&bytes).unwrap();
        self.wire.send(&json!({"type": "weather.forecast", "request_id": sentinel}));
        self.wire.collect("the answer to the last message", |event| event["request_id"] == json!(sentinel))
    }
}

fn runner(cases: u32) -> TestRunner {
    // A fixed seed: a failure is the same for everybody, and is found by whoever changes the code.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, rng)
}

#[track_caller]
fn sane(events: &[Value]) {
    for event in events {
        assert_ne!(event["code"], "internal_error", "{event}");
        assert_ne!(event["fatal"], true, "{event}");
    }
}

#[test]
fn no_line_within_a_session_breaks_it() {
    let model = Model::start_blocking();
    model.answer(|_| Some(Reply::text("ok")));
    let env = TestEnv::with_model(&model.url());
    let mut wire = Wire::worker(&env);
    wire.initialize(&["approvals", "attach", "jobs", "notices", "watch"]);
    let session = wire.session(&env, &json!({}));
    let worker = RefCell::new(Worker { wire, session, work: json!(env.work()), batches: 0 });
    let tried = runner(100).run(&prop::collection::vec(line(), 1..40), |lines| {
        sane(&worker.borrow_mut().play(&lines));
        Ok(())
    });
    tried.unwrap_or_else(|error| panic!("{error}"));
    // What waits is run or dropped, and then an ordinary prompt is answered.
    let Worker { mut wire, session, .. } = worker.into_inner();
    wire.request(json!({"type": "session.pause", "session_id": session, "paused": false}));
    let answer = loop {
        let answer = wire.ask(json!({"type": "turn.start", "session_id": session, "prompt": "are you there?"}));
        if answer["code"] != "queue_limit" {
            break answer;
        }
        wire.turn();
    };
    let asked = &answer["request_id"];
    let end = wire.until("its end", |event| event["request_id"] == *asked && scv_tests::wire::is_terminal(event));
    assert_eq!(end["type"], "turn.completed");
    drop(wire);
    env.finish();
}

#[test]
fn no_line_before_a_session_ends_more_than_its_connection() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start();
    let tried = runner(60).run(&prop::collection::vec(line(), 1..20), |lines| {
        let mut wire = Wire::plain(&env);
        let mut bytes = Vec::new();
        for (number, line) in lines.iter().enumerate() {
            bytes.extend(line.bytes(number, "01a22e78-08a4-70ea-85bf-3f701f510e9a", &json!(env.work())));
            bytes.push(b'\n');
        }
        // It may be refused for good in the middle of it.
        let _ = wire.send_bytes(&bytes);
        wire.close_write();
        for event in wire.until_closed() {
            prop_assert_ne!(&event["code"], "internal_error", "{}", event);
        }
        Ok(())
    });
    tried.unwrap_or_else(|error| panic!("{error}"));
    let supervisor = env.running("scvd").pop().unwrap();
    let mut wire = Wire::plain(&env);
    assert_eq!(wire.control(&json!({"action": "status"}))["pid"], supervisor.pid);
    wire.session(&env, &json!({}));
    let log = env.supervisor().as_ref().unwrap().stderr();
    assert!(!log.contains("panicked"), "{log}");
    drop(wire);
    env.finish();
}
