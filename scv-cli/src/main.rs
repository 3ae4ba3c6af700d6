//! `scv`: everything a person types. It parses, asks the supervisor and shows what comes back.

mod binaries;
mod commands;
mod context;
mod error;
mod output;
mod service;
mod start;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = commands::Cli::parse();
    let result = context::Context::new(&cli.global).and_then(|context| commands::run(cli.command, &context));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::report(&error);
            ExitCode::from(error.kind.exit_code())
        }
    }
}
