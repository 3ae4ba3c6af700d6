//! `scv run`: the supervisor in the foreground, under its guard.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::binaries;
use crate::context::Context;
use crate::error::CliError;

/// `scv run`
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Where it works
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

impl Run {
    /// Becomes the guard: whoever watches this process watches the supervisor.
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        context.refuse_if_delegated("run")?;
        let scvd = binaries::find("scvd", context)?;
        binaries::find("scv-worker", context)?;
        let workspace = workspace(self.workspace.as_deref())?;
        forget_stop(context)?;
        let mut command = std::process::Command::new(&scvd);
        command.arg("--scv-home").arg(context.layout.home()).args(["--guard", "--foreground"]);
        command.env_remove(shared::config::API_KEY_ENV);
        if let Some(workspace) = workspace {
            command.current_dir(workspace);
        }
        let error = command.exec();
        Err(CliError::failed(format!("cannot run {}", scvd.display())).because(error))
    }
}

/// `--workspace`, which has to be a directory.
pub(super) fn workspace(dir: Option<&Path>) -> Result<Option<PathBuf>, CliError> {
    let Some(dir) = dir else { return Ok(None) };
    let cannot = || CliError::usage(format!("cannot work in {}", dir.display()));
    let dir = dir.canonicalize().map_err(|error| cannot().because(error))?;
    if dir.is_dir() { Ok(Some(dir)) } else { Err(cannot().hint("it is no directory")) }
}

/// After `scv stop` only `scv start` and `scv run` start anything again.
pub(super) fn forget_stop(context: &Context) -> Result<(), CliError> {
    let stopped = context.layout.stopped();
    shared::fs::remove(&stopped)
        .map_err(|error| CliError::failed(format!("cannot remove {}", stopped.display())).because(error))
}
