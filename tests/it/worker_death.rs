//! A worker that dies in the middle of something: what it started is gone, its session comes back,
//! and nobody else notices.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;
use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::session::{common, seq};
use scv_tests::wire::is_terminal;
use scv_tests::{Attached, Killer, Moment, TestEnv, Wire, eventually, wait};
use serde_json::{Value, json};

/// Promised are 100 ms; the rest is for a loaded machine.
const SUBTREE_GONE_WITHIN: Duration = Duration::from_secs(1);

fn running() -> (TestEnv, Model) {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    env.start();
    (env, model)
}

/// A client of our own kind, with a session that outlives it.
fn client(env: &TestEnv) -> (Wire, String) {
    let mut wire = Wire::connect(env);
    wire.initialize(&["attach", "approvals"]);
    let session = wire.session(env, &json!({"on_disconnect": "keep"}));
    (wire, session)
}

/// The kinds and numbers of what a client was told with a number, without what is not kept.
fn kept(events: &[Value]) -> Vec<Value> {
    let is_kept = |event: &&Value| seq(event).is_some() && event["type"] != "assistant.delta";
    events.iter().filter(is_kept).map(common).collect()
}

#[track_caller]
fn interrupted_once(attached: &Attached) {
    let ends: Vec<&Value> = attached.events.iter().filter(|event| is_terminal(event)).collect();
    assert_eq!(ends.len(), 1, "{ends:?}");
    assert_eq!(ends[0]["code"], "session_crashed", "{ends:?}");
}

#[test]
fn while_an_answer_streams_both_clients_are_told_the_same_and_the_neighbour_goes_on() {
    let (env, model) = running();
    let (mut neighbour, other) = client(&env);
    let (theirs, ours) = (Gate::new(), Gate::new());
    model.push(Reply::new().delta("one ").stall(&theirs).delta("two"));
    neighbour.prompt(&other, "count");
    wait(theirs.reached());

    let (mut first, session) = client(&env);
    let mut second = Attached::to(&env, &session, 0);
    model.push(Reply::new().delta("half an ").stall(&ours).delta("answer"));
    first.prompt(&session, "speak");
    let mut told = vec![first.collect("the first half", |event| event["type"] == "assistant.delta")];
    told.push(second.wire.collect("the first half", |event| event["type"] == "assistant.delta"));
    env.worker_of(&session).kill();
    // Its connection to the model is gone with it.
    wait(ours.left());
    told[0].extend(first.until_closed());
    told[1].extend(second.wire.until_closed());
    assert_eq!(kept(&told[0]), kept(&told[1]));

    let again = [Attached::to(&env, &session, 0), Attached::to(&env, &session, 0)];
    for attached in &again {
        interrupted_once(attached);
        assert_eq!(kept(&attached.events[..told[0].len() - 1]), kept(&told[0]), "{:#?}", attached.events);
    }
    assert_eq!(kept(&again[0].events), kept(&again[1].events));

    theirs.release();
    let end = neighbour.turn().pop().unwrap();
    assert_eq!(end["type"], "turn.completed", "the neighbour's answer");
    drop(again);
    env.finish();
}

#[test]
fn the_whole_subtree_of_its_commands_is_gone_at_once() {
    let (env, model) = running();
    let (mut wire, session) = client(&env);
    let command = "setsid sleep 600 & (setsid sh -c 'sleep 601 & sleep 602' &) & env -i setsid sleep 603 & \
                   (trap '' TERM HUP; sleep 604) & touch mark; wait";
    model.push(Reply::new().call("bash", &json!({"command": command})));
    wire.prompt(&session, "work");
    wire.approve();
    let sleeps = |env: &TestEnv| env.children().iter().filter(|child| child.name == "sleep").count();
    eventually("all of them run", scv_tests::DEADLINE, || sleeps(&env) == 5);
    let worker = env.worker_of(&session);
    worker.signal(Signal::KILL);
    env.gone_within(SUBTREE_GONE_WITHIN, TestEnv::children);
    interrupted_once(&Attached::to(&env, &session, 0));
    eventually("no zombies", Duration::from_secs(2), || env.zombies().is_empty());
    env.finish();
}

#[test]
fn an_approval_that_was_open_is_void_and_what_it_was_for_never_runs() {
    let (env, model) = running();
    let (mut wire, session) = client(&env);
    model.push(Reply::new().call("bash", &json!({"command": "touch made"})));
    wire.prompt(&session, "work");
    let asked = wire.until_type("approval.requested");
    // The list follows what clients are told.
    eventually("the list says so", Duration::from_secs(1), || {
        env.session_entry(&session).unwrap()["state"] == "waiting"
    });
    env.worker_of(&session).kill();
    let mut attached = Attached::to(&env, &session, 0);
    interrupted_once(&attached);
    attached.wire.resolve(&asked, true);
    let answer = attached.wire.until_type("error");
    assert_eq!(answer["code"], "invalid_request", "{answer}");
    model.push(Reply::text("fine"));
    attached.wire.prompt(&session, "go on");
    attached.wire.turn();
    assert!(!env.work().join("made").exists());
    drop(attached);
    env.finish();
}

#[test]
fn a_session_that_had_work_is_started_again_unasked_and_one_that_had_none_is_not() {
    let (env, model) = running();
    let (mut wire, busy) = client(&env);
    let gate = Gate::new();
    model.push(Reply::new().delta("a").stall(&gate));
    wire.prompt(&busy, "go");
    wait(gate.reached());
    let (_idle_client, idle) = client(&env);
    let state = |session: &str| env.session_entry(session).unwrap()["state"].clone();
    eventually("the list says so", Duration::from_secs(1), || state(&busy) == "working" && state(&idle) == "idle");
    let workers = [env.worker_of(&busy), env.worker_of(&idle)];
    workers.iter().for_each(scv_tests::processes::Process::kill);
    eventually("the busy one is there again, idle", scv_tests::DEADLINE, || {
        let entry = env.session_entry(&busy).unwrap();
        entry["state"] == "idle" && entry["worker_pid"].is_number() && entry["worker_pid"] != workers[0].pid
    });
    let entry = env.session_entry(&idle).unwrap();
    assert_eq!((&entry["state"], &entry["worker_pid"]), (&json!("hibernated"), &Value::Null), "{entry}");
    drop(Attached::to(&env, &idle, 0));
    eventually("whoever attaches wakes it", scv_tests::DEADLINE, || state(&idle) == "idle");
    env.finish();
}

#[test]
fn a_closed_session_says_so_and_can_be_attached() {
    let (env, model) = running();
    let (mut wire, session) = client(&env);
    model.push(Reply::text("hello"));
    wire.prompt(&session, "hi");
    wire.turn();
    wire.request(json!({"type": "session.close", "session_id": session}));
    let events = wire.until_closed();
    assert_eq!(events.last().unwrap()["type"], "session.closed", "{events:?}");
    let state = || env.session_entry(&session).unwrap()["state"].clone();
    eventually("it is closed", scv_tests::DEADLINE, || state() == "closed");
    let attached = Attached::to(&env, &session, 0);
    assert!(attached.events.iter().any(|event| event["type"] == "turn.completed"));
    assert_eq!(state(), "idle");
    drop(attached);
    env.finish();
}

#[test]
fn a_session_that_keeps_dying_is_left_down_until_somebody_asks() {
    let (env, model) = running();
    let (mut wire, session) = client(&env);
    let gate = Gate::new();
    model.push(Reply::new().delta("a").stall(&gate));
    wire.prompt(&session, "go");
    wait(gate.reached());
    let worker = env.worker_of(&session);
    // Whichever worker gets the session dies as it comes back.
    let mut doomed: BTreeMap<i32, Killer> = BTreeMap::new();
    let mut doom_the_others = || {
        for other in env.running("scv-worker").into_iter().filter(|process| process.pid != worker.pid) {
            doomed.entry(other.pid).or_insert_with(|| Killer::at_write(&other, "journal.jsonl", 1, Moment::Before));
        }
        !doomed.is_empty()
    };
    eventually("a spare", scv_tests::DEADLINE, &mut doom_the_others);
    worker.kill();
    let entry = || env.session_entry(&session).unwrap();
    eventually("it is left down", scv_tests::DEADLINE, || doom_the_others() && entry()["state"] == "failed");
    env.running("scv-worker").iter().for_each(scv_tests::processes::Process::kill);
    assert_eq!(doomed.into_values().map(Killer::writes).sum::<usize>(), 0);
    let status = Wire::plain(&env).control(&json!({"action": "status"}));
    let tally = status["workers"].as_array().unwrap().iter().find(|worker| worker["role"] == json!(session));
    assert_eq!(tally.unwrap()["recent_deaths"], 3, "{status}");
    let why = "left down after 3 deaths in a minute, until somebody attaches; the last one: its worker died";
    assert!(entry()["reason"].as_str().is_some_and(|reason| reason.starts_with(why)), "{}", entry());
    let told = env.scv(&["sessions", "ls"]);
    assert!(told.exits(0).stdout.contains("left down after 3 deaths"), "{told:?}");
    assert_eq!(entry()["worker_pid"], Value::Null);
    interrupted_once(&Attached::to(&env, &session, 0));
    assert_eq!(entry()["state"], "idle");
    env.finish();
}

#[test]
fn a_client_that_comes_back_faster_than_the_news_of_the_death_is_served() {
    let (env, model) = running();
    let (mut wire, session) = client(&env);
    model.push(Reply::text("hello"));
    wire.prompt(&session, "hi");
    wire.turn();
    let scvd = env.running("scvd").remove(0);
    let signal = |pid, signal| rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal);
    for _ in 0..10 {
        let worker = env.worker_of(&session);
        let mut next = Wire::connect(&env);
        next.initialize(&["attach"]);
        // The supervisor hears of the death and of the request at the same moment.
        signal(scvd.pid, Signal::STOP).unwrap();
        worker.kill();
        next.send(&json!({"type": "session.attach", "request_id": "again", "session_id": session, "after_seq": 0}));
        signal(scvd.pid, Signal::CONT).unwrap();
        next.until_type("session.attached");
        wire = next;
    }
    drop(wire);
    env.finish();
}

#[test]
fn whoever_watches_is_told_of_a_death_and_how_it_died_before_the_list_without_it() {
    let (env, _model) = running();
    let (_wire, session) = client(&env);
    // Until the worker's own state is in the list, its end is that of a worker which took nobody.
    eventually("the supervisor knows it", scv_tests::DEADLINE, || {
        env.session_entry(&session).unwrap()["created_unix_ms"] != 0
    });
    let mut watch = Wire::connect(&env);
    watch.initialize(&["watch"]);
    watch.request(json!({"type": "daemon.control", "command": {"action": "watch"}}));
    watch.until_type("watch.snapshot");
    env.worker_of(&session).kill();
    let crashed = watch.until_type("session.crashed");
    assert_eq!(
        crashed,
        json!({"type": "session.crashed", "session_id": session, "reason": "its worker died (signal: 9)", "signal": 9,
            "resumable": true})
    );
    let gone = |event: &Value| event["gone"].as_array().is_some_and(|gone| gone.contains(&json!(session)));
    watch.until("that it is not live", gone);
    drop(watch);
    env.finish();
}

#[test]
fn a_session_that_cannot_be_started_again_is_left_down_and_comes_back_when_it_can() {
    let (env, model) = running();
    let (mut wire, session) = client(&env);
    let gate = Gate::new();
    model.push(Reply::new().delta("a").stall(&gate));
    wire.prompt(&session, "go");
    wait(gate.reached());
    // A session does not open without its workspace.
    let work = env.work();
    let moved = work.with_extension("moved");
    std::fs::rename(&work, &moved).unwrap();
    env.worker_of(&session).kill();
    let entry = || env.session_entry(&session).unwrap();
    eventually("it is left down", scv_tests::DEADLINE, || entry()["state"] == "failed");
    assert!(entry()["reason"].as_str().unwrap().contains("left down after 3 deaths"), "{}", entry());
    assert!(env.layout().wanted().join(&session).exists(), "its work is not forgotten");
    let mut next = Wire::connect(&env);
    next.initialize(&["attach"]);
    let refused = next.ask(json!({"type": "session.attach", "session_id": session, "after_seq": 0}));
    assert_eq!(refused["type"], "error", "{refused}");
    std::fs::rename(&moved, &work).unwrap();
    interrupted_once(&Attached::to(&env, &session, 0));
    drop(next);
    env.finish();
}
