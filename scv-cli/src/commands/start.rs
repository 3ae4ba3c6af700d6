//! `scv start`: the supervisor as a service of the user, or in the background.

use std::path::{Path, PathBuf};

use clap::Args;
use shared::client::{Client, ClientError};
use shared::fs::{self, Sync};
use shared::protocol::control::Command;

use super::run::{forget_stop, workspace};
use crate::context::{Context, block_on};
use crate::error::CliError;
use crate::service::linger::{self, Linger};
use crate::service::{self, Service, units};
use crate::{binaries, output, start};

/// `scv start`
#[derive(Debug, Default, Args)]
pub(crate) struct Start {
    /// Where it works; not as a service
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// In the background, also where systemd's user manager runs
    #[arg(long)]
    no_service: bool,
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
                    let as_service = !self.no_service && workspace.is_none();
                    (start_one(context, workspace.as_deref(), as_service).await?, "started")
                }
                Err(error) => return Err(error.into()),
            };
            let status = client.control(Command::Status).await?;
            if !context.quiet {
                let under = status.service.map(|unit| format!(" as {unit}")).unwrap_or_default();
                output::line(&format!("scvd {} {verb}{under} (pid {})", status.version, status.pid))?;
            }
            Ok(())
        })
    }
}

async fn start_one(context: &Context, workspace: Option<&Path>, as_service: bool) -> Result<Client, CliError> {
    if as_service
        && let Some(service) = Service::reach(context)
        && start_service(context, &service)?
    {
        return Ok(Client::connect(&context.layout, "scv-start", &[]).await?);
    }
    start::start(context, workspace, start::Stays::UntilStopped, "scv-start", &[]).await
}

/// Installs and starts the units; `false` where systemd cannot serve this home, which is told.
fn start_service(context: &Context, service: &Service) -> Result<bool, CliError> {
    let scvd = binaries::find("scvd", context)?;
    binaries::find("scv-worker", context)?;
    let (path, unknown) = service::path_for_the_service(context);
    let contents = match units::contents(&context.layout, &scvd, &path) {
        Ok(contents) => contents,
        Err(unfit) => {
            output::warn(context, &format!("not as a service of systemd: {unfit}"));
            return Ok(false);
        }
    };
    if let Some(unknown) = unknown {
        output::warn(context, &format!("the service gets this shell's PATH: {unknown}"));
    }
    service.start(&contents)?;
    if let Linger::Off { command } = linger::look(context) {
        output::warn(context, &format!("sessions end when you log out; to let them go on: {command}"));
    }
    Ok(true)
}

/// From now on the supervisor stays, also one that a command had started for itself.
fn keep(context: &Context) -> Result<(), CliError> {
    let kept = context.layout.kept();
    fs::private_dir(&context.layout.state())
        .and_then(|()| fs::replace(&kept, b"", Sync::Durable))
        .map_err(|error| CliError::failed(format!("cannot write {}", kept.display())).because(error))
}
