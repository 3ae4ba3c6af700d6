//! The connection ended before the turn did: what became of the session.

use std::time::Duration;

use shared::client::Client;
use shared::protocol::SessionId;
use shared::protocol::control::{Command, SessionState};
use tokio::time::{Instant, sleep, timeout};

use crate::context::Context;
use crate::error::CliError;

/// The supervisor sees a worker's death within milliseconds; a client gives it this long.
const VERDICT_WITHIN: Duration = Duration::from_millis(800);

/// The error that says so.
pub(super) async fn explain(context: &Context, session_id: SessionId, turn_ran: bool) -> CliError {
    let state = timeout(VERDICT_WITHIN, settled(context, session_id)).await.ok().flatten();
    let when = if turn_ran { "while the turn ran" } else { "before the turn started" };
    let what = match state {
        Some(SessionState::Crashed | SessionState::Failed) => {
            format!("the worker of session {session_id} crashed {when}")
        }
        Some(SessionState::Closed) => format!("session {session_id} was closed {when}"),
        _ => format!("the connection to session {session_id} ended {when}"),
    };
    CliError::failed(what).hint(format!("`scv exec --session {session_id} …` continues it"))
}

/// The session's state once it is no longer that of a worker at work.
async fn settled(context: &Context, session_id: SessionId) -> Option<SessionState> {
    let deadline = Instant::now() + VERDICT_WITHIN / 2;
    loop {
        let mut client = Client::connect(&context.layout, "scv-exec", &[]).await.ok()?;
        let status = client.control(Command::Sessions { all: true, page: 0, chat: None }).await.ok()?;
        let id = session_id.to_string();
        let state = status.sessions?.entries?.into_iter().find(|entry| entry.id == id).map(|entry| entry.state);
        match state {
            Some(SessionState::Working | SessionState::Waiting | SessionState::Idle) if Instant::now() < deadline => {
                sleep(Duration::from_millis(20)).await;
            }
            state => return state,
        }
    }
}
