//! A session seen from outside: what is open in it, without a replay, and a word to it.

use std::time::Duration;

use shared::client::Client;
use shared::protocol::client::SessionAttach;
use shared::protocol::server::{ApprovalRequest, QueueEntry, Reply, TurnBody};
use shared::protocol::{ClientMessage, ServerEvent, SessionId};
use tokio::time::timeout;

use super::exec::client_context;
use crate::context::Context;
use crate::error::CliError;

/// A session with a long journal may take a while to come back.
const WITHIN: Duration = Duration::from_mins(1);

/// A session, and what was open in it when we came.
pub(super) struct Observed {
    /// The connection, which is the session's now.
    pub(super) client: Client,
    /// Questions that wait.
    pub(super) approvals: Vec<ApprovalRequest>,
    /// Prompts that wait.
    pub(super) queue: Vec<QueueEntry>,
    /// Whether they wait for somebody.
    pub(super) paused: bool,
}

impl Observed {
    /// Attaches `client` to a session; one that is at rest wakes up.
    pub(super) async fn attach(context: &Context, mut client: Client, session_id: SessionId) -> Result<Self, CliError> {
        let request_id = client.request_id();
        let attach = SessionAttach {
            request_id: request_id.clone(),
            session_id,
            after_seq: 0,
            on_disconnect: None,
            auto_approve: None,
            client: Some(client_context(context)?),
            observe: true,
        };
        client.send(&ClientMessage::SessionAttach(attach)).await?;
        let mut seen = Self { client, approvals: Vec::new(), queue: Vec::new(), paused: false };
        let opened = seen.opened(&request_id);
        let late = |_| CliError::failed(format!("session {session_id} did not open within {} s", WITHIN.as_secs()));
        timeout(WITHIN, opened).await.map_err(late)??;
        Ok(seen)
    }

    async fn opened(&mut self, request: &str) -> Result<(), CliError> {
        loop {
            match self.next(request).await? {
                ServerEvent::Turn(event) => {
                    if let TurnBody::ApprovalRequested(asked) = event.body {
                        self.approvals.push(asked);
                    }
                }
                ServerEvent::Reply(Reply::QueueSnapshot { entries, paused, .. }) => {
                    (self.queue, self.paused) = (entries, paused);
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// The next event. Fails where it refuses `request`, and where there is none.
    pub(super) async fn next(&mut self, request: &str) -> Result<ServerEvent, CliError> {
        match self.client.next_event().await?.map(|received| received.event) {
            Some(ServerEvent::Reply(Reply::Error(error)))
                if error.fatal || error.request_id.as_deref() == Some(request) =>
            {
                Err(CliError::failed(error.message))
            }
            Some(event) => Ok(event),
            None => Err(shared::client::ClientError::Lost.into()),
        }
    }
}
