//! Kills what may be killed, at random moments, for as long as one likes, and compares what SCV
//! says with what really happened: what the model was asked, what the tools wrote, what every
//! client was told, and which processes there are.
//!
//! ```sh
//! cargo build --workspace && cargo run -p scv-tests --example chaos -- [--seconds 60] [--seed N] [--systemd]
//! ```
//!
//! A seed replays the schedule: who does what after which pause. The moments within the product are
//! real, so a failure may take some tries to come again. `docs/reliability.md` tells what is checked
//! and what was run.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for a developer's terminal")]
#![cfg_attr(test, allow(dead_code, reason = "its tests are those of its decisions"))]

mod actors;
mod checks;
mod faults;
mod options;
mod report;
mod script;
mod truth;
mod world;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scv_tests::env::binary_path;
use scv_tests::fakes::model::Model;
use scv_tests::systemd::BIN;

use crate::actors::Stage;
use crate::faults::Faults;
use crate::options::Options;
use crate::report::Report;
use crate::truth::Truth;
use crate::world::{Guarded, Service, World};

/// Faults between two looks at everything.
const FAULTS_A_ROUND: u64 = 30;

fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    if !options.systemd {
        Guarded::alone();
    }
    println!("chaos: {options:?}");
    let truth = Arc::new(Truth::new(report::dir(options.seed)));
    let (world, model) = begin(&options, &truth);
    let stage = Stage { world, truth };
    let clean = run(&options, &stage, &model);
    if !clean {
        let kept = report::keep(&stage);
        println!("FAILED with seed {}; kept in {}", options.seed, kept.display());
    }
    ExitCode::from(u8::from(!clean))
}

/// An instance that runs, and its model.
fn begin(options: &Options, truth: &Arc<Truth>) -> (Arc<dyn World>, Model) {
    let (world, model): (Arc<dyn World>, Model) = if options.systemd {
        let (service, model) = Service::new(&script::settings(&format!("{BIN}/scv-worker")));
        (Arc::new(service), model)
    } else {
        let model = Model::start_blocking();
        let worker = binary_path("scv-worker");
        let guarded = Guarded::new(&model, &script::settings(&worker.to_string_lossy()));
        (Arc::new(guarded), model)
    };
    let seen_from_here = Arc::clone(&world);
    script::play(&model, truth, move |path: &Path| seen_from_here.outside(path));
    world.start().exits(0);
    (world, model)
}

/// Rounds of faults, each with a look at everything at its end; whether all was well.
fn run(options: &Options, stage: &Stage, model: &Model) -> bool {
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut report = Report::new();
    let mut actors = actors::start(stage, options.users, &mut random);
    let mut faults = Faults::new(random.fork());
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut steps = 0;
    while Instant::now() < end && steps < options.steps && stage.truth.is_clean() {
        for _ in 0..FAULTS_A_ROUND.min(options.steps - steps) {
            if Instant::now() >= end || !stage.truth.is_clean() {
                break;
            }
            faults.one(stage);
            steps += 1;
        }
        faults.mend(stage);
        if let Some(took) = checks::all(stage, &actors) {
            report.settled(took);
        }
        model.forget();
    }
    for actor in &actors {
        actor.stop();
    }
    for actor in &mut actors {
        actor.join();
    }
    checks::stops(stage);
    report.print(&stage.truth, &mut faults);
    stage.truth.is_clean()
}
