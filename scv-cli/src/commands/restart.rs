//! `scv restart`: the supervisor that is installed now takes over; sessions go on.

use std::time::Duration;

use clap::Args;
use shared::client::{Client, ClientError};
use shared::protocol::control::{Command, Status};

use super::start;
use crate::context::{Context, block_on};
use crate::error::CliError;
use crate::output;

/// Longer than the supervisor gives its successor in all (5 s to be able to, 12 s for the answers
/// to clients, 4 s for workers on their way, 2 s to read, 5 s to be up).
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// `scv restart`
#[derive(Debug, Args)]
pub(crate) struct Restart {
    /// Also replace the workers of idle sessions; those that work, when they are idle
    #[arg(long)]
    when_idle: bool,
    /// The `status` object of the supervisor that is in charge then
    #[arg(long)]
    json: bool,
}

impl Restart {
    /// Restarts, or starts one if none runs. Works inside a session, too: the session goes on.
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        context.refuse_if_delegated("restart")?;
        let Some((before, after)) = block_on(self.replace(context))? else {
            return start::Start::default().run(context);
        };
        if self.json {
            return Ok(output::json(&after)?);
        }
        if context.quiet {
            return Ok(());
        }
        Ok(output::line(&sentence(before, &after))?)
    }

    /// The pid of the supervisor before, and what the one says that is in charge now; none if
    /// none ran.
    async fn replace(&self, context: &Context) -> Result<Option<(i32, Status)>, CliError> {
        let mut client = match Client::connect(&context.layout, "scv-restart", &[]).await {
            Ok(client) => client,
            Err(ClientError::NotRunning { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let before = client.control(Command::Status).await?;
        let command = Command::Restart { when_idle: self.when_idle };
        match client.control_within(command, ANSWERED_WITHIN).await {
            Ok(after) => Ok(Some((before.pid, after))),
            Err(ClientError::Refused(refusal)) => Err(CliError::failed(refusal.message)
                .hint(format!("nothing changed for the sessions; the log is {}", context.layout.log().display()))),
            Err(error) => Err(error.into()),
        }
    }
}

fn sentence(before: i32, after: &Status) -> String {
    let live = after.sessions.as_ref().map_or(0, |sessions| sessions.live);
    let of_another = after.workers.iter().filter(|worker| worker.version != after.version && worker.pid != 0).count();
    let old = match of_another {
        0 => String::new(),
        count => format!(", {count} on an older release until idle"),
    };
    let sessions = if live == 1 { "1 session goes on".to_owned() } else { format!("{live} sessions go on") };
    format!("scvd {} (pid {}) took over from pid {before}; {sessions}{old}", after.version, after.pid)
}
