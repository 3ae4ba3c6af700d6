//! Comparisons of what SCV says with what happened, at moments when nothing is under way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use scv_tests::TestEnv;
use scv_tests::env::list;
use scv_tests::fakes::model::Model;
use scv_tests::processes::Process;
use serde_json::{Value, json};

use crate::fault;
use crate::report::Report;
use crate::truth::Truth;
use crate::user::User;

/// Everything that was accepted has ended by then: a turn takes seconds, and a session that kept
/// dying is started again by its user.
const SETTLED_WITHIN: Duration = Duration::from_mins(2);

/// What a run left is gone by then (2.3 s for what ignores SIGTERM).
const CLEAN_WITHIN: Duration = Duration::from_secs(8);

/// One look at everything.
pub(crate) struct Check<'a> {
    pub env: &'a TestEnv,
    pub model: &'a Model,
    pub truth: &'a Truth,
    pub users: &'a [User],
}

impl Check<'_> {
    /// Lets everything come to rest, looks, and lets it go on.
    pub(crate) fn all(&self, report: &mut Report) {
        if !self.truth.is_clean() {
            return;
        }
        for user in self.users {
            user.rests(true);
        }
        let began = Instant::now();
        while self.users.iter().any(|user| user.outstanding() > 0) {
            if began.elapsed() > SETTLED_WITHIN {
                let waiting: Vec<usize> = (0..self.users.len()).filter(|n| self.users[*n].outstanding() > 0).collect();
                self.truth.violation(format!("users {waiting:?} still wait for prompts that were sent"));
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        report.settled(began.elapsed());
        self.prompts_ended_once();
        self.ledger();
        self.processes();
        self.sessions();
        self.truth.log("looked at everything");
        for user in self.users {
            user.rests(false);
        }
    }

    /// Every prompt that was taken ended, and in one turn.
    fn prompts_ended_once(&self) {
        let mut wrong = Vec::new();
        {
            let mut state = self.truth.state();
            for (number, prompt) in &state.prompts {
                if prompt.ends.len() != 1 && !prompt.withdrawn {
                    wrong.push(format!("prompt {number} of {}: ended as {:?}", prompt.session, prompt.ends));
                }
            }
            // What was found to be right need not be looked at again.
            state.prompts.retain(|_, prompt| prompt.ends.len() != 1);
        }
        for wrong in wrong {
            self.truth.violation(wrong);
        }
    }

    /// No tool ran twice, and what was reported as done was done.
    fn ledger(&self) {
        let mut ran: BTreeMap<(u64, usize), usize> = BTreeMap::new();
        for user in 0..self.users.len() {
            let ledger = self.env.work().join(format!("user-{user}/ledger"));
            for line in std::fs::read_to_string(ledger).unwrap_or_default().lines() {
                let call = line.split_once('.').and_then(|(n, step)| Some((n.parse().ok()?, step.parse().ok()?)));
                let Some(call) = call else { continue };
                *ran.entry(call).or_default() += 1;
            }
        }
        for (call, times) in &ran {
            if *times > 1 {
                self.truth.violation(format!("call {call:?} ran {times} times"));
            }
        }
        let succeeded: Vec<_> = self.truth.state().succeeded.iter().copied().collect();
        for call in succeeded {
            if !ran.contains_key(&call) {
                self.truth.violation(format!("call {call:?} was reported as done and never ran"));
            }
        }
    }

    /// No process without a living owner.
    fn processes(&self) {
        let began = Instant::now();
        loop {
            let left = self.env.children();
            if left.is_empty() {
                break;
            }
            if began.elapsed() > CLEAN_WITHIN {
                self.truth.violation(format!("nothing runs, and these are left:\n{}", list(&left)));
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let began = Instant::now();
        while let Some(why) = self.strangers() {
            if began.elapsed() > CLEAN_WITHIN {
                self.truth.violation(why);
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Workers that the supervisor does not know, or knows and are not there; zombies.
    fn strangers(&self) -> Option<String> {
        let status = fault::answers(self.env, self.truth)?;
        let known: BTreeSet<i64> = entries(&status["workers"]).filter_map(|worker| worker["pid"].as_i64()).collect();
        let there: BTreeSet<i64> = self.env.running("scv-worker").iter().map(|worker| i64::from(worker.pid)).collect();
        let zombies: Vec<Process> = self.env.zombies();
        if known.iter().filter(|pid| **pid != 0).copied().collect::<BTreeSet<_>>() != there {
            return Some(format!("the supervisor knows the workers {known:?}, and there are {there:?}"));
        }
        if self.env.running("scvd").len() != 1 {
            return Some(format!("supervisors:\n{}", list(&self.env.running("scvd"))));
        }
        (!zombies.is_empty()).then(|| format!("zombies:\n{}", list(&zombies)))
    }

    /// No session is at work when nothing is under way, and journals are whole lines.
    fn sessions(&self) {
        let Some(status) = fault::control(self.env, &json!({"action": "sessions", "all": true})) else { return };
        for entry in entries(&status["sessions"]["entries"]) {
            if ["working", "waiting"].contains(&entry["state"].as_str().unwrap_or_default()) {
                self.truth.violation(format!("nothing is under way, and the list says {entry}"));
            }
        }
        for session in std::fs::read_dir(self.env.layout().sessions()).into_iter().flatten().flatten() {
            let journal = std::fs::read(session.path().join("journal.jsonl")).unwrap_or_default();
            for line in journal.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
                if let Err(error) = serde_json::from_slice::<Value>(line) {
                    self.truth.violation(format!("{}: {error} in a whole line", session.path().display()));
                }
            }
        }
        let _ = self.model;
    }
}

fn entries(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// `scv stop` leaves nothing.
pub(crate) fn ends_well(env: &TestEnv, truth: &Truth) {
    if fault::answers(env, truth).is_none() {
        return;
    }
    let stopped = env.scv(&["stop"]);
    if !stopped.status.success() {
        truth.violation(format!("scv stop: {stopped:?}"));
    }
    let began = Instant::now();
    loop {
        let guard = env.supervisor().as_ref().map(scv_tests::Program::pid);
        let left: Vec<Process> =
            env.processes().into_iter().filter(|process| Some(process.pid) != guard || process.state != 'Z').collect();
        if left.is_empty() {
            return;
        }
        if began.elapsed() > CLEAN_WITHIN {
            truth.violation(format!("scv stop left:\n{}", list(&left)));
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
