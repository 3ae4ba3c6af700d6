//! What a run did, in a few lines, and what is kept of one that failed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use scv_tests::TestEnv;

use crate::fault::{Counts, Fault};
use crate::truth::Truth;

/// Figures of a run.
pub(crate) struct Report {
    seed: u64,
    began: Instant,
    faults: Counts,
    supervisor: Vec<Duration>,
    settled: Vec<Duration>,
}

impl Report {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, began: Instant::now(), faults: Counts::new(), supervisor: Vec::new(), settled: Vec::new() }
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub(crate) fn supervisor_back(&mut self, took: Duration) {
        self.supervisor.push(took);
    }

    pub(crate) fn settled(&mut self, took: Duration) {
        self.settled.push(took);
    }

    /// Prints the summary.
    pub(crate) fn print(&mut self, truth: &Truth) {
        let state = truth.state();
        let kills: u64 = self.faults.iter().filter(|(fault, _)| fault.kills()).map(|(_, count)| count).sum();
        let all: u64 = self.faults.values().sum();
        println!("{} s, {all} faults, {kills} kills: {:?}", self.began.elapsed().as_secs(), self.faults);
        println!("{} requests to the model, {} calls reported as done", state.asked.len(), state.succeeded.len());
        println!("{}", figures("a supervisor answered again", &mut self.supervisor));
        let mut sessions = state.recoveries.clone();
        println!("{}", figures("a user was back in the session", &mut sessions));
        println!("{}", figures("everything accepted had ended", &mut self.settled));
        println!("{} violations", state.violations.len());
        for violation in &state.violations {
            println!("  {violation}");
        }
    }

    /// Copies the home and the log of steps to a place that stays.
    pub(crate) fn keep(&self, env: &TestEnv, truth: &Truth) -> PathBuf {
        let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../target/chaos/{}", self.seed));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("steps.log"), truth.state().log.join("\n")).unwrap();
        if let Some(supervisor) = &*env.supervisor() {
            std::fs::write(dir.join("scvd.log"), supervisor.stderr()).unwrap();
        }
        let copied = std::process::Command::new("cp").arg("-a").arg(env.layout().home()).arg(&dir).status();
        assert!(copied.is_ok_and(|status| status.success()), "the home could not be copied");
        dir
    }
}

fn figures(what: &str, times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |part: usize| times.get((times.len() * part / 100).min(times.len().saturating_sub(1)));
    let ms = |time: Option<&Duration>| time.map_or_else(|| "-".to_owned(), |time| format!("{} ms", time.as_millis()));
    format!("{what}: p50 {}, p95 {}, max {} (n {})", ms(at(50)), ms(at(95)), ms(times.last()), times.len())
}
