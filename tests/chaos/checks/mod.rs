//! Comparisons of what SCV says with what happened, at moments when nothing is under way.

mod journals;
mod ledger;
mod processes;
mod prompts;
mod sessions;

use std::time::{Duration, Instant};

use serde_json::json;

use crate::actors::{Actor, Stage};
pub(crate) use processes::stops;

/// Everything that was accepted has ended by then: a turn takes seconds, and a session that kept
/// dying is started again by its user.
const SETTLED_WITHIN: Duration = Duration::from_mins(2);

/// What a run left is gone by then (2.3 s for what ignores SIGTERM), and a supervisor has seen it.
const CLEAN_WITHIN: Duration = Duration::from_secs(10);

/// Lets everything come to rest, looks, and lets it go on. How long it took to come to rest.
pub(crate) fn all(stage: &Stage, actors: &[Actor]) -> Option<Duration> {
    for actor in actors {
        actor.rest(true);
    }
    let began = Instant::now();
    while actors.iter().any(|actor| actor.busy() > 0) {
        if !stage.truth.is_clean() {
            return None;
        }
        if began.elapsed() > SETTLED_WITHIN {
            let waiting: Vec<usize> = (0..actors.len()).filter(|n| actors[*n].busy() > 0).collect();
            stage.truth.violation(format!("actors {waiting:?} still wait for what they asked for"));
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let took = began.elapsed();
    processes::nothing_runs(stage);
    ledger::each_call_once(stage);
    prompts::each_ended_once(stage);
    journals::tell_the_same(stage);
    sessions::agree(stage);
    stage.truth.state().disk_was_full = false;
    stage.truth.log("check", &json!({"rested_after_ms": u64::try_from(took.as_millis()).unwrap_or(0)}));
    for actor in actors {
        actor.rest(false);
    }
    Some(took)
}

/// Waits until `wrong` says nothing more; what it says after `CLEAN_WITHIN` is a violation.
fn soon(stage: &Stage, mut wrong: impl FnMut() -> Option<String>) {
    let began = Instant::now();
    while let Some(why) = wrong() {
        if began.elapsed() > CLEAN_WITHIN {
            return stage.truth.violation(why);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
