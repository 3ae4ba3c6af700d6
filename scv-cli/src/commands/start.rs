//! `scv start`: the supervisor in the background.

use std::path::PathBuf;

use clap::Args;
use shared::client::{Client, ClientError};
use shared::fs::{self, Sync};
use shared::protocol::control::Command;

use super::run::{forget_stop, workspace};
use crate::context::{Context, block_on};
use crate::error::CliError;
use crate::{output, start};

/// `scv start`
#[derive(Debug, Args)]
pub(crate) struct Start {
    /// Where it works
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

impl Start {
    /// Starts one unless one runs, and says which.
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        context.refuse_if_delegated("start")?;
        if context.is_inside_a_run() {
            return Err(CliError::usage("`scv start` is refused inside a session of SCV")
                .hint("a supervisor that a session starts would end with the session"));
        }
        let workspace = workspace(self.workspace.as_deref())?;
        forget_stop(context)?;
        keep(context)?;
        block_on(async {
            let (mut client, verb) = match Client::connect(&context.layout, "scv-start", &[]).await {
                Ok(client) => (client, "runs already"),
                Err(ClientError::NotRunning { .. }) => {
                    let stays = start::Stays::UntilStopped;
                    (start::start(context, workspace.as_deref(), stays, "scv-start", &[]).await?, "started")
                }
                Err(error) => return Err(error.into()),
            };
            let status = client.control(Command::Status).await?;
            if !context.quiet {
                output::line(&format!("scvd {} {verb} (pid {})", status.version, status.pid))?;
            }
            Ok(())
        })
    }
}

/// From now on the supervisor stays, also one that a command had started for itself.
fn keep(context: &Context) -> Result<(), CliError> {
    let kept = context.layout.kept();
    fs::private_dir(&context.layout.state())
        .and_then(|()| fs::replace(&kept, b"", Sync::Durable))
        .map_err(|error| CliError::failed(format!("cannot write {}", kept.display())).because(error))
}
