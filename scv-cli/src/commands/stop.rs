//! `scv stop`: ends the supervisor and everything it started.

use std::time::Duration;

use clap::Args;
use shared::client::{Client, ClientError};
use shared::fs::{self, Sync};
use shared::protocol::control::Command;

use crate::context::{Context, block_on};
use crate::error::CliError;
use crate::output;
use crate::service::Service;

/// Its answer comes just before its end.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// `scv stop`
#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// Remove the units of systemd, too
    #[arg(long)]
    uninstall: bool,
}

impl Stop {
    /// Stops, and returns once the supervisor is gone. That none runs is no failure.
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        context.refuse_if_delegated("stop")?;
        if context.is_inside_a_run() {
            return Err(CliError::usage("`scv stop` is refused inside a session of SCV")
                .hint("nobody could start it again from there; a person at a terminal can stop it"));
        }
        let said = Self::stop(context)?;
        // Whatever ran: a unit that is left would be started by the next client, or the next boot.
        if let Some(service) = Service::reach(context).filter(Service::is_installed) {
            service.stop()?;
            if self.uninstall && service.uninstall()? && !context.quiet {
                output::line(&format!("removed {} and its socket unit", service.names.service))?;
            }
        }
        say(context, &said)
    }

    /// Ends the supervisor, if one runs; what there is to say.
    fn stop(context: &Context) -> Result<String, CliError> {
        block_on(async {
            let mut client = match connect(context).await {
                Err(ClientError::NotRunning { .. }) => {
                    remember_stop(context)?;
                    // One that was on its way up may have looked for the mark just before.
                    match connect(context).await {
                        Err(ClientError::NotRunning { home }) => {
                            return Ok(format!("no supervisor runs for {}", home.display()));
                        }
                        other => other?,
                    }
                }
                other => other?,
            };
            match client.control(Command::Stop).await {
                // It may be gone before we have read its answer.
                Ok(_) | Err(ClientError::Lost) => {}
                Err(error) => return Err(error.into()),
            }
            if !client.closed(GONE_WITHIN).await {
                return Err(CliError::failed("the supervisor said that it stops, and still runs")
                    .hint(format!("its log is {}", context.layout.log().display())));
            }
            Ok("stopped".to_owned())
        })
    }
}

async fn connect(context: &Context) -> Result<Client, ClientError> {
    Client::connect(&context.layout, "scv-stop", &[]).await
}

fn say(context: &Context, text: &str) -> Result<(), CliError> {
    if context.quiet { Ok(()) } else { Ok(output::line(text)?) }
}

/// A supervisor writes the mark itself; without one it is ours to write.
fn remember_stop(context: &Context) -> Result<(), CliError> {
    let path = context.layout.stopped();
    fs::private_dir(&context.layout.state())
        .and_then(|()| fs::replace(&path, b"", Sync::Durable))
        .and_then(|()| fs::remove(&context.layout.kept()))
        .map_err(|error| CliError::failed(format!("cannot write {}", path.display())).because(error))
}
