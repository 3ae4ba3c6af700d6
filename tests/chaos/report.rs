//! What a run did, in a few lines, and what is kept of one that failed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::actors::Stage;
use crate::faults::Faults;
use crate::truth::Truth;

/// The log of steps has all of them.
const SHOWN: usize = 20;

/// Figures of a run.
pub(crate) struct Report {
    began: Instant,
    settled: Vec<Duration>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), settled: Vec::new() }
    }

    pub(crate) fn settled(&mut self, took: Duration) {
        self.settled.push(took);
    }

    /// Prints the summary.
    pub(crate) fn print(&mut self, truth: &Truth, faults: &mut Faults) {
        let state = truth.state();
        let kills: u64 = faults.counts.iter().map(|(fault, count)| fault.kills() * count).sum();
        let steps: u64 = faults.counts.values().sum();
        println!("{} s, {steps} faults, {kills} kills: {:?}", self.began.elapsed().as_secs(), faults.counts);
        let counts: Vec<String> = state.counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        println!("{}", counts.join(", "));
        println!("{}", figures("a supervisor answered again", &mut faults.recoveries));
        println!("{}", figures("a user was back in the session", &mut state.recoveries.clone()));
        println!("{}", figures("everything accepted had ended", &mut self.settled));
        println!("{} looks at everything, {} violations", self.settled.len(), state.violations.len());
        for violation in state.violations.iter().take(SHOWN) {
            println!("  {violation}");
        }
    }
}

/// Where the log of steps of a seed goes, and what is kept when it fails.
pub(crate) fn dir(seed: u64) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../target/chaos/{seed}"))
}

/// Copies the instance's home and log beside the log of steps.
pub(crate) fn keep(stage: &Stage) -> PathBuf {
    let dir = stage.truth.written();
    std::fs::write(dir.join("scvd.log"), stage.world.log()).unwrap();
    copy(&stage.world.outside(&stage.world.home()), &dir.join("home"));
    dir
}

fn copy(from: &Path, to: &Path) {
    // Sockets and what is gone meanwhile are no loss.
    let _ = Command::new("cp").arg("-a").arg(from).arg(to).stderr(std::process::Stdio::null()).status();
}

fn figures(what: &str, times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |part: usize| times.get((times.len() * part / 100).min(times.len().saturating_sub(1)));
    let ms = |time: Option<&Duration>| time.map_or_else(|| "-".to_owned(), |time| format!("{} ms", time.as_millis()));
    format!("{what}: p50 {}, p95 {}, max {} (n {})", ms(at(50)), ms(at(95)), ms(times.last()), times.len())
}
