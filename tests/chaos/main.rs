//! Kills what may be killed, at random moments, for as long as one likes, and compares what SCV
//! says with what really happened: what the model was asked, what the tools wrote, what every
//! client was told, and which processes there are.
//!
//! ```sh
//! cargo build --workspace && cargo run -p scv-tests --example chaos -- [--seconds 60] [--seed N] [--users 12]
//! ```
//!
//! A seed replays the schedule (who does what after which pause); the moments within the product
//! are real, so a failure may take some tries to come again. `docs/reliability.md` tells what is
//! checked and what was run.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for a developer's terminal")]

mod check;
mod fault;
mod report;
mod script;
mod truth;
mod user;

use std::sync::Arc;
use std::time::{Duration, Instant};

use scv_tests::TestEnv;
use scv_tests::fakes::model::Model;

use crate::check::Check;
use crate::fault::Faults;
use crate::report::Report;
use crate::truth::Truth;
use crate::user::User;

/// Faults between two looks at everything.
const FAULTS_A_ROUND: usize = 25;

struct Options {
    seconds: u64,
    seed: u64,
    users: usize,
}

fn options() -> Options {
    let mut options = Options { seconds: 60, seed: fastrand::u64(..1_000_000), users: 12 };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse::<u64>().ok());
        match (name.as_str(), value) {
            ("--seconds", Some(value)) => options.seconds = value,
            ("--seed", Some(value)) => options.seed = value,
            ("--users", Some(value)) => options.users = usize::try_from(value).unwrap_or(12),
            _ => {
                eprintln!("usage: chaos [--seconds N] [--seed N] [--users N]");
                std::process::exit(2);
            }
        }
    }
    options
}

fn main() {
    let Options { seconds, seed, users } = options();
    println!("chaos: seed {seed}, {seconds} s, {users} users");
    let mut random = fastrand::Rng::with_seed(seed);
    let truth = Arc::new(Truth::default());
    let model = Model::start_blocking();
    script::play(&model, &truth);
    let env = TestEnv::new();
    script::configure(&env, &model);
    env.start_guarded();

    let mut report = Report::new(seed);
    let mut users: Vec<User> = (0..users).map(|number| User::start(&env, number, random.fork(), &truth)).collect();
    let mut faults = Faults::new(random.fork());
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end && truth.is_clean() {
        for _ in 0..FAULTS_A_ROUND {
            if Instant::now() >= end || !truth.is_clean() {
                break;
            }
            faults.one(&env, &truth, &mut report);
        }
        faults.mend(&env, &truth);
        Check { env: &env, model: &model, truth: &truth, users: &users }.all(&mut report);
        model.forget();
    }
    for user in &mut users {
        user.stop();
    }
    check::ends_well(&env, &truth);
    report.print(&truth);
    let clean = truth.is_clean();
    if !clean {
        let kept = report.keep(&env, &truth);
        println!("FAILED with seed {seed}; kept in {}", kept.display());
    }
    drop(users);
    drop(env);
    drop(model);
    std::process::exit(i32::from(!clean));
}
