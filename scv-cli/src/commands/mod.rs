//! The verbs, one file each.

mod agents;
mod approvals;
pub(super) mod config;
mod demo;
mod doctor;
mod exec;
mod ids;
mod observe;
mod restart;
mod run;
mod server;
mod sessions;
mod start;
mod status;
mod stop;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::context::Context;
use crate::error::CliError;

/// SCV runs your agents on your machine: a main agent that answers here, and coding agents that
/// it hands work to.
#[derive(Debug, Parser)]
#[command(name = "scv", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The instance's home
    #[arg(long, global = true, value_name = "DIR", help = "The instance's home [env: SCV_HOME] [default: ~/.scv]")]
    pub(crate) scv_home: Option<PathBuf>,
    /// One more configuration file, over the instance's and the project's
    #[arg(long, global = true, value_name = "FILE", env = "SCV_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Only answers and errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// More of what happens
    #[arg(long, short, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
}

/// How a list is shown.
#[derive(Debug, Args)]
pub(crate) struct Listing {
    /// Also those that are left out otherwise
    #[arg(long)]
    all: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs one prompt and prints the answer
    Exec(exec::Exec),
    /// Runs the supervisor in the foreground
    Run(run::Run),
    /// Starts the supervisor in the background
    Start(start::Start),
    /// Replaces the supervisor by the one that is installed now; sessions go on
    Restart(restart::Restart),
    /// Stops the supervisor and everything it started
    Stop(stop::Stop),
    /// Tells how the supervisor is
    Status(status::Status),
    /// Lists, stops and removes sessions
    #[command(subcommand)]
    Sessions(sessions::Sessions),
    /// Lists and answers what waits for a person
    #[command(subcommand)]
    Approvals(approvals::Approvals),
    /// Lists and ends delegated agents
    #[command(subcommand)]
    Agents(agents::Agents),
    /// Shows and checks the configuration
    #[command(subcommand)]
    Config(config::Config),
    /// Checks the machine, the home, the service, the agents; says what to do
    Doctor(doctor::Doctor),
    /// Shows the whole system on a scripted model: no key, no network
    Demo,
    /// Speaks the protocol on stdin and stdout: one session, no supervisor
    Server(server::Server),
    /// Leaves the terminal and becomes a program; `scv start` asks the user's shell for its PATH so
    #[command(hide = true)]
    LoginShell {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
}

/// Runs one command.
pub(crate) fn run(command: Command, context: &Context) -> Result<(), CliError> {
    match command {
        Command::Exec(exec) => exec.run(context),
        Command::Run(run) => run.run(context),
        Command::Start(start) => start.run(context),
        Command::Restart(restart) => restart.run(context),
        Command::Stop(stop) => stop.run(context),
        Command::Status(status) => status.run(context),
        Command::Sessions(sessions) => sessions.run(context),
        Command::Approvals(approvals) => approvals.run(context),
        Command::Agents(agents) => agents.run(context),
        Command::Config(config) => config.run(context),
        Command::Doctor(doctor) => doctor.run(context),
        Command::Demo => demo::run(context),
        Command::Server(server) => server.run(context),
        Command::LoginShell { .. } => Err(CliError::usage("it runs before everything else")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_of_every_command_may_stand_after_the_verb() {
        let cli = Cli::parse_from(["scv", "status", "--json", "--scv-home", "/h", "-q"]);
        assert_eq!((cli.global.scv_home, cli.global.quiet), (Some("/h".into()), true));
    }
}
