//! Sessions at rest cost nothing but their directories: lists read a page of them, and a start, a
//! status and an idle supervisor read none.

use std::collections::BTreeSet;
use std::fs::{File, FileTimes};
use std::time::{Duration, SystemTime};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use scv_tests::fakes::model::{Model, Reply};
use scv_tests::{DEADLINE, TestEnv, Wire, at_rest, eventually};
use serde_json::{Value, json};
use shared::clock;
use shared::protocol::SessionId;

const NOBODY: &str = "http://127.0.0.1:9/v1";

/// Most that one answer may hold.
const PAGE: usize = 100;

/// One page, and where the list goes on.
fn page(wire: &mut Wire, before: &Value) -> (Vec<SessionId>, Value) {
    let status = wire.control(&json!({"action": "sessions", "all": true, "before": before}));
    let entries = status["sessions"]["entries"].as_array().unwrap();
    assert!(entries.len() <= PAGE, "{}", entries.len());
    let ids = entries.iter().map(|entry| entry["id"].as_str().unwrap().parse().unwrap()).collect();
    (ids, status["sessions"]["next"].clone())
}

#[test]
fn whoever_pages_through_two_thousand_gets_each_once_while_others_come_and_go() {
    let env = TestEnv::with_model(NOBODY);
    let made = at_rest::hibernated(env.layout(), &env.work(), 2000);
    env.start();
    let mut wire = Wire::plain(&env);
    let mut listed = Vec::new();
    let mut go: Vec<SessionId> = made.iter().copied().step_by(50).collect();
    let stay: BTreeSet<SessionId> = made.iter().copied().filter(|id| !go.contains(id)).collect();
    let (mut ids, mut next) = page(&mut wire, &Value::Null);
    loop {
        listed.extend(ids);
        if next.is_null() {
            break;
        }
        // One comes, and two go: from what was listed, and from what was not.
        at_rest::one(env.layout(), &env.work(), |_| {});
        for id in [go.pop(), (!go.is_empty()).then(|| go.remove(0))].into_iter().flatten() {
            wire.control(&json!({"action": "session_remove", "session_id": id}));
        }
        (ids, next) = page(&mut wire, &next);
    }
    let unique: BTreeSet<SessionId> = listed.iter().copied().collect();
    assert_eq!(unique.len(), listed.len(), "none twice");
    assert!(listed.is_sorted_by(|newer, older| newer > older), "newest first");
    assert_eq!(stay.difference(&unique).count(), 0, "none is missing");
    let now = wire.control(&json!({"action": "status"}))["sessions"]["hibernated"].as_u64().unwrap();
    assert_eq!(usize::try_from(now).unwrap(), std::fs::read_dir(env.layout().sessions()).unwrap().count());
    env.finish();
}

#[test]
fn the_command_lists_all_or_the_newest_and_finds_one_by_the_start_of_its_id() {
    let env = TestEnv::with_model(NOBODY);
    let made = at_rest::hibernated(env.layout(), &env.work(), 250);
    env.start();
    let list = |more: &[&str]| -> Vec<Value> {
        let args: Vec<&str> = ["sessions", "ls", "--json"].into_iter().chain(more.iter().copied()).collect();
        serde_json::from_str(&env.scv(&args).exits(0).stdout).unwrap()
    };
    assert_eq!(list(&[]).len(), 250);
    let newest = list(&["-n", "3"]);
    let prompts: Vec<&Value> = newest.iter().map(|entry| &entry["last_prompt"]).collect();
    assert_eq!(prompts, ["prompt 249", "prompt 248", "prompt 247"]);

    let text = made[100].to_string();
    let ids: Vec<String> = made.iter().map(ToString::to_string).collect();
    let alone = (4..36).find(|length| ids.iter().filter(|id| id.starts_with(&text[..*length])).count() == 1).unwrap();
    env.scv(&["sessions", "rm", &text[..alone]]).exits(0);
    assert!(!env.layout().session(made[100]).path().exists());
    let output = env.scv(&["sessions", "rm", &text[..4]]);
    output.exits(2);
    assert!(output.stderr.contains("more than one"), "{output:?}");
    assert_eq!(list(&[]).len(), 249);
    env.finish();
}

/// How often `sessions/` or something in one of the directories in it was opened.
fn opened(watch: &File) -> usize {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(watch, &mut buffer);
    std::iter::from_fn(|| reader.next().ok().map(|event| event.events())).count()
}

#[test]
fn a_start_reads_no_session_and_a_status_their_names_at_most_once() {
    let env = TestEnv::with_model(NOBODY);
    let made = at_rest::hibernated(env.layout(), &env.work(), 300);
    // Nothing came or went in the last minute.
    let times = FileTimes::new().set_modified(SystemTime::now() - Duration::from_mins(1));
    File::open(env.layout().sessions()).unwrap().set_times(times).unwrap();
    let watch = File::from(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap());
    inotify::add_watch(&watch, env.layout().sessions(), WatchFlags::OPEN).unwrap();
    for id in &made {
        inotify::add_watch(&watch, env.layout().session(*id).path(), WatchFlags::OPEN).unwrap();
    }
    env.start();
    let mut wire = Wire::plain(&env);
    let spare =
        |status: &Value| status["workers"].as_array().is_some_and(|all| all.iter().any(|w| w["role"] == "spare"));
    assert_eq!(opened(&watch), 0, "at the start");
    for _ in 0..5 {
        assert_eq!(wire.control(&json!({"action": "status"}))["sessions"]["hibernated"], 300);
    }
    eventually("a spare", DEADLINE, || spare(&wire.control(&json!({"action": "status"}))));
    assert!(opened(&watch) <= 1, "the names, once");
    let (ids, _) = page(&mut wire, &Value::Null);
    assert_eq!((ids.len(), opened(&watch)), (PAGE, PAGE), "one meta file a session of the page");
    env.finish();
}

#[test]
fn closed_sessions_are_removed_when_their_days_are_over_and_no_others() {
    let model = Model::start_blocking();
    let env = TestEnv::new();
    env.configure(&model.url(), "[session]\nkeep_closed_days = 2\n\n[supervisor]\nreconcile_seconds = 1\n");
    env.layout().create().unwrap();
    let day = 86_400_000;
    let old = clock::unix_ms() - 3 * day;
    let session = |closed: Option<u64>| {
        at_rest::one(env.layout(), &env.work(), |meta| {
            meta.created_unix_ms = old - day;
            meta.closed = closed.is_some();
            meta.closed_unix_ms = closed;
        })
    };
    // Ids that are as old as their sessions claim to be.
    let aged = |id: SessionId| {
        let mut bytes = *id.as_uuid().as_bytes();
        bytes[..6].copy_from_slice(&(old - day).to_be_bytes()[2..]);
        let aged = SessionId::from(uuid::Uuid::from_bytes(bytes));
        std::fs::rename(env.layout().session(id).path(), env.layout().session(aged).path()).unwrap();
        aged
    };
    let (over, recent, open) = (aged(session(Some(old))), aged(session(Some(old + 2 * day))), aged(session(None)));
    env.start();
    let is_there = |id: SessionId| env.layout().session(id).path().exists();
    eventually("it is removed", DEADLINE, || !is_there(over));
    eventually("its data is gone", DEADLINE, || std::fs::read_dir(env.layout().trash()).unwrap().count() == 0);
    assert!(is_there(recent) && is_there(open));
    // Whoever has kept an id can still use the others.
    let mut wire = Wire::plain(&env);
    let answer = wire.ask(json!({"type": "session.attach", "session_id": over, "after_seq": 0}));
    assert_eq!(answer["code"], "session_not_found", "{answer}");
    scv_tests::Attached::to(&env, &open.to_string(), 0);
    env.finish();
}

#[test]
fn a_list_tells_of_a_session_at_rest_what_it_was_asked_last() {
    let model = Model::start_blocking();
    model.answer(|_| Some(Reply::text("ok")));
    let env = TestEnv::with_model(&model.url());
    env.start();
    let ask = |session: &str, mut wire: Wire| {
        for prompt in ["first", "look at\nthe door"] {
            wire.prompt(session, prompt);
            wire.turn();
        }
        wire
    };
    let mut wire = Wire::plain(&env);
    let closed = wire.session(&env, &json!({}));
    drop(ask(&closed, wire));
    let mut wire = Wire::plain(&env);
    let killed = wire.session(&env, &json!({"on_disconnect": "keep"}));
    let wire = ask(&killed, wire);
    env.worker_of(&killed).kill();
    drop(wire);
    let entry = |session: &str| env.session_entry(session).unwrap();
    eventually("it is closed", DEADLINE, || entry(&closed)["state"] == "closed");
    eventually("its worker is gone", DEADLINE, || entry(&killed)["worker_pid"].is_null());
    assert_eq!(entry(&closed)["last_prompt"], "look at the door");
    // As its worker wrote it when it began: it had no chance to write it again.
    assert_eq!(entry(&killed)["last_prompt"], "first");
    let table = env.scv(&["sessions", "ls", "--all"]).exits(0).stdout.clone();
    assert!(table.lines().any(|line| line.contains("closed") && line.contains("look at the door")), "{table}");
    env.finish();
}
