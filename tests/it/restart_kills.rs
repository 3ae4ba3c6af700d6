//! SIGKILL of either supervisor at any step of a restart: one is in charge, and nothing is lost.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use scv_tests::fakes::model::{Model, Reply};
use scv_tests::processes::Process;
use scv_tests::{Attached, DEADLINE, Killer, Moment, TestEnv, Wire, eventually};
use serde_json::json;

fn guarded() -> (TestEnv, Model) {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    env.start_guarded();
    (env, model)
}

/// The supervisor that answers. A look at the processes may find a child of it that is about to
/// become a worker.
fn in_charge(env: &TestEnv) -> Process {
    let status = Wire::plain(env).control(&json!({"action": "status"}));
    status["pid"].as_i64().and_then(|pid| Process::of(pid.try_into().ok()?)).unwrap()
}

/// One supervisor is in charge, knows the session, and the client of the session has noticed nothing.
#[track_caller]
fn all_is_well(env: &TestEnv, model: &Model, wire: &mut Wire, session: &str, worker: i32) {
    eventually("one supervisor answers", DEADLINE, || {
        env.running("scvd").len() == 1 && env.scv(&["status"]).code() == 0
    });
    assert_eq!(env.worker_of(session).pid, worker);
    model.push(Reply::text("still here"));
    wire.prompt(session, "go");
    assert_eq!(wire.turn().last().unwrap()["type"], "turn.completed");
    let mut other = Attached::to(env, session, 0).wire;
    model.push(Reply::text("here too"));
    other.prompt(session, "go");
    assert_eq!(other.turn().last().unwrap()["type"], "turn.completed");
    wire.turn();
    Wire::plain(env).session(env, &json!({}));
    eventually("every end is collected", DEADLINE, || env.zombies().is_empty());
}

#[test]
fn the_old_one_may_be_killed_at_every_message_of_the_handing_over() {
    for nth in 1..=6 {
        for moment in [Moment::Before, Moment::After] {
            let (env, model) = guarded();
            let mut wire = Wire::plain(&env);
            let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
            let worker = env.worker_of(&session).pid;
            eventually("a spare is there", DEADLINE, || env.running("scv-worker").len() == 2);
            let old = in_charge(&env);
            let killer = Killer::at_message(&old, nth, moment);
            let restart = env.scv_start(&["restart"]);
            killer.writes();
            restart.wait();
            all_is_well(&env, &model, &mut wire, &session, worker);
            drop(wire);
            env.finish();
        }
    }
}

#[test]
fn the_new_one_may_be_killed_at_any_moment() {
    let (env, model) = guarded();
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({"on_disconnect": "keep"}));
    let worker = env.worker_of(&session).pid;
    let mut failed = 0;
    for micros in [0, 300, 600, 1000, 1500, 2000, 3000, 4000, 6000, 10_000, 20_000] {
        eventually("one supervisor", DEADLINE, || env.running("scvd").len() == 1);
        let old = in_charge(&env);
        let restart = env.scv_start(&["restart"]);
        let start = Instant::now();
        let new = loop {
            // By its arguments: the guard, which executes another program now, shows none for a moment.
            let is_new = |scvd: &Process| scvd.pid != old.pid && scvd.args.iter().any(|arg| arg == "--take-over");
            let new = env.running("scvd").into_iter().find(is_new);
            if let Some(new) = new {
                break new;
            }
            assert!(start.elapsed() < DEADLINE, "no successor came");
        };
        // The moment is what is varied here.
        std::thread::sleep(Duration::from_micros(micros));
        new.signal(Signal::KILL);
        let told = restart.wait();
        if told.code() != 0 && told.stderr.contains("stays in charge") {
            failed += 1;
            assert_eq!(in_charge(&env).pid, old.pid, "{told:?}");
        }
        all_is_well(&env, &model, &mut wire, &session, worker);
    }
    assert!(failed > 0, "it was killed before it was up at least once");
    drop(wire);
    env.finish();
}
