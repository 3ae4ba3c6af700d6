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

/// What it calls itself towards the supervisor.
const NAME: &str = "scv-start";

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
        let as_service = !self.no_service && workspace.is_none();
        let service = as_service.then(|| Service::reach(context)).flatten();
        block_on(async {
            let (mut client, verb) = match Client::connect(&context.layout, NAME, &[]).await {
                Ok(client) => renewed(context, client, service.as_ref()).await?,
                Err(ClientError::NotRunning { .. }) => {
                    (start_one(context, workspace.as_deref(), service.as_ref()).await?, "started")
                }
                Err(error) => return Err(error.into()),
            };
            let status = client.control(Command::Status).await?;
            if status.service.is_some()
                && let Linger::Off { command } = linger::look(context)
            {
                output::warn(context, &format!("sessions end when you log out; to let them go on: {command}"));
            }
            if !context.quiet {
                let under = status.service.map(|unit| format!(" as {unit}")).unwrap_or_default();
                output::line(&format!("scvd {} {verb}{under} (pid {})", status.version, status.pid))?;
            }
            Ok(())
        })
    }
}

/// One that runs already, with its units as this release and the login shell would have them.
async fn renewed(
    context: &Context,
    mut client: Client,
    service: Option<&Service>,
) -> Result<(Client, &'static str), CliError> {
    let same = "runs already";
    let Some(service) = service else { return Ok((client, same)) };
    if client.control(Command::Status).await?.service.is_none() {
        let how =
            "it runs without systemd, and nothing starts it at boot: `scv stop`, then `scv start` makes it a service";
        output::warn(context, how);
        return Ok((client, same));
    }
    if install(context, service)? != Some(true) {
        return Ok((client, same));
    }
    // No session is in its cgroup: they go on, and it finds them again.
    service.restart()?;
    Ok((Client::connect(&context.layout, NAME, &[]).await?, "runs again, with the units of now,"))
}

async fn start_one(context: &Context, workspace: Option<&Path>, service: Option<&Service>) -> Result<Client, CliError> {
    if let Some(service) = service
        && install(context, service)?.is_some()
    {
        service.start_again(&context.layout)?;
        return Ok(Client::connect(&context.layout, NAME, &[]).await?);
    }
    start::start(context, workspace, start::Stays::UntilStopped, NAME, &[]).await
}

/// Installs the units; whether they changed. `None` where systemd cannot serve this home, which is told.
fn install(context: &Context, service: &Service) -> Result<Option<bool>, CliError> {
    let scvd = binaries::find("scvd", context)?;
    binaries::find("scv-worker", context)?;
    let now = units::installed(&service.dir, &service.names).and_then(|[service, _]| units::path_in(&service));
    let (path, unknown) = service::path_for_the_service(context, now.as_deref());
    let contents = match units::contents(&context.layout, &scvd, &path) {
        Ok(contents) => contents,
        Err(unfit) => {
            output::warn(context, &format!("not as a service of systemd: {unfit}"));
            return Ok(None);
        }
    };
    if let Some(unknown) = unknown {
        let instead = if now.is_some() { "keeps the PATH that it has" } else { "gets this shell's PATH" };
        output::warn(context, &format!("the service {instead}: {unknown}"));
    }
    service.install(&contents).map(Some)
}

/// From now on the supervisor stays, also one that a command had started for itself.
fn keep(context: &Context) -> Result<(), CliError> {
    let kept = context.layout.kept();
    fs::private_dir(&context.layout.state())
        .and_then(|()| fs::replace(&kept, b"", Sync::Durable))
        .map_err(|error| CliError::failed(format!("cannot write {}", kept.display())).because(error))
}
