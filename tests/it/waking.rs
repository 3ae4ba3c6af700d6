//! What a session is given back when its worker comes again: its key, its history, its journal's
//! newest part.

use std::collections::BTreeMap;

use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::session::seq;
use scv_tests::talk::{of_type, streamed};
use scv_tests::{Attached, DEADLINE, Killer, Moment, TestEnv, Wire, eventually, wait};
use serde_json::{Value, json};
use shared::protocol::SessionId;

const KEY: &str = "sk-from-the-client-0123456789";

fn attached(env: &TestEnv) -> Wire {
    let mut wire = Wire::connect(env);
    wire.initialize(&["attach", "approvals"]);
    wire
}

/// A configuration without a key; only clients have one.
fn keyless(model: &Model, more: &str) -> TestEnv {
    let env = TestEnv::new();
    env.write_config(&format!(
        "[provider]\nactive = \"fake\"\n\n[providers.fake]\nkind = \"openai-compatible\"\nwire_api = \"responses\"\n\
         model = \"fake-model\"\nbase_url = \"{}\"\napi_key_env = \"CLIENTS_KEY\"\n{more}",
        model.url()
    ));
    env.start();
    env
}

#[test]
fn a_session_whose_key_came_from_a_client_says_so_and_waits_for_one() {
    let model = Model::start_blocking();
    model.answer(|_| Some(Reply::text("ok")));
    let env = keyless(&model, "[session]\nhibernate_seconds = 1\n");
    let path = "/usr/bin:/bin";
    let client = json!({"env": {"CLIENTS_KEY": KEY, "PATH": path}});
    let mut wire = attached(&env);
    let session = wire.session(&env, &json!({"on_disconnect": "keep", "client": client}));
    wire.prompt(&session, "one");
    assert_eq!(wire.turn().last().unwrap()["type"], "turn.completed");
    drop(wire);
    eventually("it sleeps", DEADLINE, || env.session_entry(&session).unwrap()["state"] == "hibernated");

    let mut keyless = Attached::to(&env, &session, 0);
    let note = keyless.attached["note"].as_str().unwrap();
    assert!(note.contains("key") && note.contains("attach from a shell that has it"), "{note}");
    let refused = keyless.wire.ask(json!({"type": "turn.start", "session_id": session, "prompt": "two"}));
    assert_eq!(refused["code"], "provider_error", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("attach from a shell that has it"), "{refused}");
    // A client without it changes nothing, one that has it brings it to all.
    let poor = json!({"session_id": session, "after_seq": 0, "client": {"env": {"PATH": path}}});
    assert!(Attached::with(&env, poor).attached["note"].is_string());
    let rich = Attached::with(&env, json!({"session_id": session, "after_seq": 0, "client": client}));
    assert!(rich.attached["note"].is_null(), "{}", rich.attached);
    keyless.wire.prompt(&session, "two");
    assert_eq!(keyless.wire.turn().last().unwrap()["type"], "turn.completed");
    let last = wait(model.requests()).pop().unwrap();
    assert!(format!("{:?}", last.headers).contains(KEY), "the key is used again");
    for file in ["meta.json", "env", "journal.jsonl"] {
        let text = std::fs::read_to_string(env.layout().sessions().join(&session).join(file)).unwrap();
        assert!(!text.contains(KEY), "{file}");
    }
    env.finish();
}

/// A worker that died after it had named the directory left a session that was taken for an old one:
/// started again, it went on without the history that it was to continue.
#[test]
fn a_session_that_continues_another_has_its_history_wherever_its_worker_died() {
    let model = Model::start_blocking();
    model.answer(|_| Some(Reply::text("ok")));
    let env = TestEnv::with_model(&model.url());
    env.start();
    let mut wire = Wire::plain(&env);
    let earlier = wire.session(&env, &json!({}));
    wire.prompt(&earlier, "the old question");
    wire.turn();
    drop(wire);
    eventually("it is closed", DEADLINE, || env.session_entry(&earlier).unwrap()["state"] == "closed");

    let spare = || {
        let status = Wire::plain(&env).control(&json!({"action": "status"}));
        let workers = status["workers"].as_array().unwrap();
        let pid = workers.iter().find(|worker| worker["role"] == "spare").and_then(|worker| worker["pid"].as_i64())?;
        scv_tests::processes::Process::of(i32::try_from(pid).unwrap())
    };
    let history = |session: &str, wire: &mut Wire| {
        wire.prompt(session, "and now");
        assert_eq!(wire.turn().last().unwrap()["type"], "turn.completed");
        Value::from(wait(model.requests()).pop().unwrap().input().to_vec()).to_string()
    };
    // Before its journal's first record, by the worker that gets it first.
    eventually("a spare", DEADLINE, || spare().is_some());
    let killer = Killer::at_write(&spare().unwrap(), "journal.jsonl", 1, Moment::Before);
    let id = SessionId::new().to_string();
    let start = json!({"session_id": id, "resume": earlier, "on_disconnect": "keep"});
    let mut wire = Wire::plain(&env);
    assert_eq!(wire.session(&env, &start), id, "the next worker takes it");
    assert_eq!(killer.writes(), 0, "the first one died");
    assert!(history(&id, &mut wire).contains("the old question"));

    // Right after it had named the directory.
    let id = SessionId::new();
    let dir = env.layout().session(id);
    shared::fs::private_dir(dir.path()).unwrap();
    std::fs::write(dir.lock(), "").unwrap();
    std::fs::write(dir.journal(), "").unwrap();
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({"session_id": id, "resume": earlier}));
    assert!(history(&session, &mut wire).contains("the old question"));
    env.finish();
}

#[test]
fn a_prompt_that_is_sent_again_is_answered_without_a_number() {
    let model = Model::start_blocking();
    let gate = Gate::new();
    model.push(Reply::new().delta("a").stall(&gate).delta("b"));
    model.push(Reply::text("c"));
    let env = TestEnv::with_model(&model.url());
    env.start();
    let mut wire = attached(&env);
    let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
    let ids = [uuid::Uuid::now_v7(), uuid::Uuid::now_v7()];
    let message =
        |nth: usize| json!({"type": "turn.start", "session_id": session, "prompt": "go", "prompt_id": ids[nth]});
    assert_eq!(wire.ask(message(0))["type"], "turn.started");
    wire.until_type("assistant.delta");
    assert_eq!(wire.ask(message(1))["type"], "queue.enqueued");
    let mut again = |nth: usize, kind: &str| {
        let answer = wire.ask(message(nth));
        assert_eq!((answer["type"].as_str(), answer.get("seq")), (Some(kind), None), "{answer}");
    };
    again(0, "turn.started");
    again(1, "queue.enqueued");
    gate.release();
    let mut numbers: BTreeMap<u64, Value> = BTreeMap::new();
    let mut ends = 0;
    while ends < 2 {
        let event = wire.event();
        ends += usize::from(scv_tests::wire::is_terminal(&event));
        if let Some(number) = seq(&event) {
            assert_eq!(numbers.insert(number, event), None, "no number twice");
        }
    }
    let answer = wire.ask(message(0));
    assert_eq!((answer["type"].as_str(), answer.get("seq")), (Some("turn.completed"), None), "{answer}");
    assert_eq!(numbers.keys().last().unwrap() - numbers.keys().next().unwrap() + 1, numbers.len() as u64, "no gap");
    env.finish();
}

/// The most memory that a process had since it was asked the last time, in KiB.
fn peak_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    // proc(5): begins a new peak.
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn shortening_a_long_journal_takes_no_memory_to_speak_of() {
    /// The journal was read into memory as a whole once: that took three times its 16 MiB.
    const MEMORY_KIB: u64 = 6 << 10;
    let answer = "all work and no play ".repeat(12_000);
    let model = Model::start_blocking();
    let text = answer.clone();
    model.answer(move |request| {
        let long = request.prompt() == "long";
        Some(if long { Reply::new().deltas([text.as_str()]).pieces_of(64 << 10) } else { Reply::text("short") })
    });
    let env = TestEnv::new();
    env.configure(&model.url(), "[session]\njournal_max_bytes = 16777216\n");
    env.start();
    let mut wire = attached(&env);
    let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
    let worker = env.worker_of(&session);
    let journal = || std::fs::metadata(env.layout().sessions().join(&session).join("journal.jsonl")).unwrap().len();
    let mut turn = |prompt: &str| {
        wire.prompt(&session, prompt);
        wire.turn();
        // So that the conversation itself stays small.
        wire.request(json!({"type": "session.clear", "session_id": session}));
        wire.until_type("queue.snapshot");
    };
    let mut longest = 0;
    let (mut usual, mut compacting) = (0, 0);
    peak_kib(worker.pid);
    for _ in 0..200 {
        turn("long");
        let peak = peak_kib(worker.pid);
        if journal() < longest {
            compacting = peak;
            break;
        }
        (longest, usual) = (journal(), usual.max(peak));
    }
    assert!(longest > 15 << 20 && journal() <= 9 << 20, "{longest}, then {}", journal());
    assert!(compacting < usual + MEMORY_KIB, "{usual} KiB in any other turn, {compacting} KiB in this one");
    turn("the last");
    let last = worker.anonymous_kib().unwrap();
    assert!(last < usual + MEMORY_KIB, "{usual} KiB before, {last} KiB after");

    // What is left is replayed between its brackets, and the session goes on.
    let mut back = Attached::at_last(&env, &session, 0);
    let numbers: Vec<u64> = back.events.iter().filter_map(seq).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b) && back.attached["from_seq"] == 1, "{}", back.attached);
    assert_eq!(of_type(&back.events, "assistant.completed").last().unwrap()["content"], "short");
    let to = back.attached["to_seq"].as_u64().unwrap();
    assert!(numbers.last().is_some_and(|last| *last <= to));
    back.wire.prompt(&session, "on");
    let events = back.wire.turn();
    assert_eq!(streamed(&events), "short");
    assert_eq!(events.iter().find_map(seq), Some(to + 1));
    env.finish();
}
