//! Sessions at rest: what waking one costs, and what thousands of them cost everybody else.

use std::time::{Duration, Instant};

use scv_tests::fakes::model::{Model, Reply};
use scv_tests::{Attached, TestEnv, Wire, at_rest, eventually};
use serde_json::json;

use crate::figures::{Figures, promise};

/// Turns of a session that somebody has worked in for days.
const TURNS: usize = 200;
/// Sessions at rest of somebody who never closes one.
const MANY: usize = 10_000;
/// Promised: attaching to a session whose worker is gone.
const WAKE_MS: f64 = 100.0;
/// Promised: what an answer costs with [`MANY`] sessions at rest over what it costs with none.
const RATIO: f64 = 1.5;

/// From the attach to the queue, replay included, of a session that sleeps.
pub(crate) fn wake() {
    let model = Model::start_blocking();
    model.answer(|_| Some(Reply::text(&"a sentence of the answer. ".repeat(40))));
    let env = TestEnv::new();
    env.configure(&model.url(), "[session]\nhibernate_seconds = 1\n");
    env.start();
    let mut asleep = Figures::new("session.attach, asleep, 200 turns", "ms");
    let mut awake = Figures::new("session.attach, awake, 200 turns", "ms");
    let mut wire = Wire::connect(&env);
    wire.initialize(&["attach", "approvals"]);
    let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
    for _ in 0..TURNS {
        wire.prompt(&session, "and then?");
        wire.turn();
    }
    drop(wire);
    let attach = |figures: &mut Figures, after: u64| {
        let start = Instant::now();
        let attached = Attached::to(&env, &session, after);
        figures.took(start.elapsed());
        (attached.attached["to_seq"].as_u64().unwrap_or(0), attached)
    };
    let mut seen = 0;
    for _ in 0..10 {
        let sleeps = || env.session_entry(&session).is_some_and(|entry| entry["state"] == "hibernated");
        eventually("it sleeps", Duration::from_secs(30), sleeps);
        // As a client that was there before: what it has seen is not replayed.
        let (to, first) = attach(&mut asleep, seen);
        seen = to;
        drop(attach(&mut awake, seen));
        drop(first);
    }
    awake.show();
    asleep.show();
    promise("median", asleep.median(), WAKE_MS);
    env.finish();
}

/// The same with no session at rest and with [`MANY`].
pub(crate) fn many() {
    let mut ratios = Vec::new();
    let mut medians: Vec<Vec<(&str, f64)>> = Vec::new();
    for count in [0, MANY] {
        let env = TestEnv::with_model("http://127.0.0.1:9/v1");
        at_rest::hibernated(env.layout(), &env.work(), count);
        // So that the two directories are as old as those of a day are.
        std::thread::sleep(Duration::from_secs(3));
        let figures = |what: &str| Figures::new(&format!("{what}, {count} at rest"), "ms");
        let (mut start, mut status) = (figures("start of scvd until ready"), figures("daemon.control status"));
        let (mut page, mut session) = (figures("one page of sessions"), figures("session.start"));
        for _ in 0..5 {
            let began = Instant::now();
            env.start();
            start.took(began.elapsed());
            let mut wire = Wire::plain(&env);
            for _ in 0..20 {
                let asked = Instant::now();
                wire.control(&json!({"action": "status"}));
                status.took(asked.elapsed());
            }
            for _ in 0..10 {
                let asked = Instant::now();
                wire.control(&json!({"action": "sessions", "all": true}));
                page.took(asked.elapsed());
            }
            let mut client = Wire::plain(&env);
            let asked = Instant::now();
            client.session(&env, &json!({}));
            session.took(asked.elapsed());
            drop((client, wire));
            env.scv(&["stop"]).exits(0);
            env.supervisor_output();
            std::fs::remove_file(env.layout().stopped()).expect("it was stopped");
        }
        [&start, &status, &page, &session].into_iter().for_each(Figures::show);
        medians.push(vec![("start", start.median()), ("status", status.median()), ("session.start", session.median())]);
        env.finish();
    }
    for (none, many) in medians[0].iter().zip(&medians[1]) {
        ratios.push((none.0, many.1 / none.1));
    }
    for (what, ratio) in ratios {
        promise(&format!("{what}, ratio of the medians"), ratio, RATIO);
    }
}
