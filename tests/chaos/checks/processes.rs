//! No process without a living owner.

use std::collections::BTreeSet;

use scv_tests::env::list;

use super::soon;
use crate::actors::Stage;
use crate::faults::answers;
use crate::world::Census;

/// A supervisor at rest has few descriptors: its own, and a link for each worker.
const DESCRIPTORS: usize = 64;

/// Nothing runs but supervisor, guard and the workers that the supervisor knows; no zombies.
pub(super) fn nothing_runs(stage: &Stage) {
    soon(stage, || {
        let census = stage.world.census();
        strangers(stage, &census).or_else(|| {
            let Census { runs, commands, zombies, .. } = &census;
            let lists = [("runs", runs), ("commands", commands), ("zombies", zombies)];
            lists.iter().find_map(|(what, left)| {
                (!left.is_empty()).then(|| format!("nothing is under way, and there are {what}:\n{}", list(left)))
            })
        })
    });
}

fn strangers(stage: &Stage, census: &Census) -> Option<String> {
    let [supervisor] = census.supervisors.as_slice() else {
        return Some(format!("supervisors:\n{}", list(&census.supervisors)));
    };
    if census.guards.len() > 1 {
        return Some(format!("guards:\n{}", list(&census.guards)));
    }
    let status = answers(stage)?;
    let workers = status["workers"].as_array().cloned().unwrap_or_default();
    let pids = workers.iter().filter_map(|worker| worker["pid"].as_i64()).filter(|pid| *pid != 0);
    let known: BTreeSet<i64> = pids.collect();
    let there: BTreeSet<i64> = census.workers.iter().map(scv_tests::processes::Process::inner_pid).collect();
    if known != there {
        return Some(format!("the supervisor knows the workers {known:?}, and there are {there:?}"));
    }
    let descriptors = supervisor.descriptors();
    let most = DESCRIPTORS + 8 * there.len();
    (descriptors > most).then(|| format!("the supervisor at rest has {descriptors} descriptors"))
}

/// `scv stop` leaves nothing.
pub(crate) fn stops(stage: &Stage) {
    let stopped = stage.world.stop();
    if !stopped.status.success() {
        stage.truth.violation(format!("scv stop: {stopped:?}"));
    }
    soon(stage, || {
        let census = stage.world.census();
        // A command that lost its session takes a moment to say so; that is nothing we left.
        let left: Vec<_> = census.all().filter(|process| !census.commands.contains(process)).cloned().collect();
        (!left.is_empty()).then(|| format!("scv stop left:\n{}", list(&left)))
    });
}
