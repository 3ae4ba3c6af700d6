//! `scv`: everything a person types. It parses, asks the supervisor and shows what comes back.

mod binaries;
mod commands;
mod context;
mod error;
mod holder;
mod output;
mod service;
mod start;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = commands::Cli::parse();
    if let commands::Command::LoginShell { command } = &cli.command {
        // Before anything is read or made: what it runs is to begin as a login does.
        let error = service::login_path::become_it(command);
        output::report(&error::CliError::failed("cannot run the login shell").because(error));
        return ExitCode::FAILURE;
    }
    let result = context::Context::new(&cli.global).and_then(|context| commands::run(cli.command, &context));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::report(&error);
            ExitCode::from(error.kind.exit_code())
        }
    }
}
