//! `scv sessions resume`: the prompts that a failed turn or a death left waiting are run.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use shared::protocol::client::{OfSession, SessionPause};
use shared::protocol::server::Reply;
use shared::protocol::{ClientMessage, ServerEvent, SessionId};
use tokio::time::timeout;

use super::Named;
use crate::commands::observe::Observed;
use crate::context::{Context, block_on};
use crate::error::CliError;
use crate::{output, start};

/// What is asked of the server. Who only resumes answers no approval.
const FEATURES: [&str; 1] = ["attach"];

/// A session answers at once, after the change is on the disk.
const WITHIN: Duration = Duration::from_secs(15);

/// `scv sessions resume`
#[derive(Debug, Args)]
pub(crate) struct Resume {
    #[command(flatten)]
    named: Named,
}

impl Resume {
    /// Resumes the queue and leaves; the session goes on without a client.
    pub(super) fn run(&self, context: &Context) -> Result<(), CliError> {
        block_on(async {
            let mut client = start::connect(context, "scv-sessions", &FEATURES).await?;
            let id = self.named.resolve(&mut client).await?;
            let mut session = Observed::attach(context, client, id).await?;
            let (was_paused, waiting) = (session.paused, session.queue.len());
            if was_paused {
                let late = |_| CliError::failed(format!("session {id} did not answer in time"));
                timeout(WITHIN, resume(&mut session, id, waiting > 0)).await.map_err(late)??;
            }
            if self.named.json {
                output::json(&json!({ "id": id, "was_paused": was_paused, "waiting": waiting }))?;
            } else if !context.quiet {
                output::line(&told(id, was_paused, waiting))?;
            }
            Ok(())
        })
    }
}

async fn resume(session: &mut Observed, session_id: SessionId, keep: bool) -> Result<(), CliError> {
    let pausing = session.client.request_id();
    let pause = SessionPause { request_id: pausing.clone(), session_id, paused: false };
    session.client.send(&ClientMessage::SessionPause(pause)).await?;
    if keep {
        // Whoever started it may be gone: what runs now must not end with this connection.
        let detach = OfSession { request_id: session.client.request_id(), session_id };
        session.client.send(&ClientMessage::SessionDetach(detach)).await?;
    }
    loop {
        match session.next(&pausing).await? {
            ServerEvent::Reply(Reply::SessionDetached { .. }) => return Ok(()),
            ServerEvent::Reply(Reply::QueueSnapshot { paused: false, .. }) if !keep => return Ok(()),
            _ => {}
        }
    }
}

fn told(id: SessionId, was_paused: bool, waiting: usize) -> String {
    let prompts = if waiting == 1 { "1 prompt".to_owned() } else { format!("{waiting} prompts") };
    match (was_paused, waiting) {
        (true, 0) => format!("session {id} is no longer paused; no prompt waited in it"),
        (true, _) => format!("session {id} goes on with {prompts}; `scv sessions attach {id}` shows it"),
        (false, 0) => format!("session {id} is not paused, and no prompt waits in it"),
        (false, _) => format!("session {id} is not paused; {prompts} wait for the turn that runs"),
    }
}
