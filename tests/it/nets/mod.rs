//! Nothing that a run left survives its end, however it hid and whoever died (P1, P2, P3, P7).

mod supervisor;

use std::time::Duration;

use rustix::process::Signal;
use scv_tests::env::binary_path;
use scv_tests::fakes::model::{Gate, Model, Reply};
use scv_tests::{DEADLINE, TestEnv, Wire, eventually};
use serde_json::json;

/// Everything that `brood` can make.
const KINDS: &str = "plain orphan own-session no-environment hidden deaf relay pipes stopped many";

/// 2 s of grace for what ignores SIGTERM, and a loaded machine.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// How a call comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Normal,
    Error,
    TimeOut,
    Cancel,
    Close,
    KillWorker,
    KillSupervisor,
    KillBoth,
    Stop,
}

struct Case {
    env: TestEnv,
    model: Model,
}

impl Case {
    fn new() -> Self {
        let model = Model::start_blocking();
        let env = TestEnv::with_model(&model.url());
        env.start_guarded();
        Self { env, model }
    }

    /// A session in which the command runs that leaves one of each kind.
    fn at_work(&self, end: End) -> (Wire, String, serde_json::Value) {
        let brood = binary_path("brood");
        let brood = brood.display();
        let command = match end {
            End::Normal => format!("{brood} {KINDS}"),
            End::Error => format!("{brood} {KINDS}; exit 3"),
            _ => format!("{brood} {KINDS} wait"),
        };
        let mut arguments = json!({"command": command});
        if end == End::TimeOut {
            arguments["timeout_seconds"] = json!(2);
        }
        let call = arguments.to_string();
        let gate = Gate::new();
        self.model.answer(move |request| {
            let outputs = request.input().iter().filter(|item| item["type"] == "function_call_output").count();
            // What comes after the call does not matter, and does not end the turn.
            let reply = Reply::new();
            Some(if outputs == 0 { reply.call_as("c-1", "bash", &call) } else { reply.stall(&gate.clone()) })
        });
        let mut wire = Wire::connect(&self.env);
        wire.initialize(&["attach", "approvals"]);
        let session = wire.session(&self.env, &json!({"on_disconnect": "keep", "auto_approve": true}));
        wire.prompt(&session, "go");
        let started = wire.until_type("turn.started");
        wire.until_type("tool.started");
        (wire, session, started["turn_id"].clone())
    }

    /// Everything of the brood that lives.
    fn brood(&self) -> usize {
        self.env.children().iter().filter(|process| process.program().as_deref() == Some("brood")).count()
    }
}

#[track_caller]
fn nothing_survives(end: End) {
    let case = Case::new();
    let (mut wire, session, turn) = case.at_work(end);
    if !matches!(end, End::Normal | End::Error) {
        // 100 of one kind, and one of each other at the least.
        eventually("the brood is there", DEADLINE, || case.brood() > 105);
    }
    match end {
        End::Normal | End::Error | End::TimeOut => {
            let done = wire.until_type("tool.completed");
            assert_eq!(done["success"], end == End::Normal, "{done}");
            // The result says so when it is true.
            assert_eq!(case.env.children(), [], "after {end:?}");
        }
        End::Cancel => {
            wire.request(json!({"type": "turn.cancel", "session_id": session, "turn_id": turn}));
            wire.turn();
            assert_eq!(case.env.children(), []);
        }
        End::Close => {
            wire.request(json!({"type": "session.close", "session_id": session}));
            wire.until_closed();
        }
        End::KillWorker => {
            case.env.worker_of(&session).signal(Signal::KILL);
        }
        End::KillSupervisor | End::KillBoth => {
            let scvd = case.env.running("scvd").pop().unwrap();
            let worker = case.env.worker_of(&session);
            // Stopped first, so that it does not see the worker's end.
            scvd.signal(Signal::STOP);
            if end == End::KillBoth {
                worker.signal(Signal::KILL);
            }
            scvd.signal(Signal::KILL);
            eventually("another supervisor serves", DEADLINE, || {
                case.env.running("scvd").iter().any(|now| now.pid != scvd.pid) && case.env.connect().is_ok()
            });
            if end == End::KillSupervisor {
                // What runs on purpose lives, and ends as ever.
                assert!(case.brood() > 105 && worker.is_alive());
                wire.request(json!({"type": "turn.cancel", "session_id": session, "turn_id": turn}));
                wire.turn();
            }
        }
        End::Stop => {
            case.env.scv(&["stop"]).exits(0);
            assert_eq!(case.brood(), 0);
        }
    }
    case.env.gone_within(GONE_WITHIN, TestEnv::children);
    let records = std::fs::read_dir(case.env.layout().delegations()).map_or(0, Iterator::count);
    assert_eq!(records, 0);
    eventually("no zombie is left", GONE_WITHIN, || case.env.zombies().is_empty());
    drop(wire);
    case.env.finish();
}

#[test]
fn of_a_call_that_ended_well() {
    nothing_survives(End::Normal);
}

#[test]
fn of_a_call_that_failed() {
    nothing_survives(End::Error);
}

#[test]
fn of_a_call_that_took_too_long() {
    nothing_survives(End::TimeOut);
}

#[test]
fn of_a_call_that_was_cancelled() {
    nothing_survives(End::Cancel);
}

#[test]
fn of_a_session_that_was_closed() {
    nothing_survives(End::Close);
}

#[test]
fn of_a_worker_that_was_killed() {
    nothing_survives(End::KillWorker);
}

#[test]
fn of_a_call_whose_supervisor_was_killed_meanwhile() {
    nothing_survives(End::KillSupervisor);
}

#[test]
fn of_a_worker_and_a_supervisor_that_were_killed_together() {
    nothing_survives(End::KillBoth);
}

#[test]
fn of_a_supervisor_that_was_stopped() {
    nothing_survives(End::Stop);
}
