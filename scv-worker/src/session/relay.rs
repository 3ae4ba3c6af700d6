//! `daemon.control` on a session's connection: asked of the supervisor, answered as it answers.

use std::time::Duration;

use shared::client::{Client, ClientError};
use shared::layout::Layout;
use shared::protocol::ErrorCode;
use shared::protocol::client::{ClientMessage, DaemonControl};
use shared::protocol::server::ServerEvent;

use super::inbox::Refusal;
use super::{ClientId, Input, Session};

/// The supervisor answers within this, or the client is told `unavailable` (protocol).
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

impl Session {
    /// Asks the supervisor; the answer comes back as [`Input::Relayed`]. One request of a client at
    /// a time, so that a flood of them is not a flood of connections.
    pub(super) fn relay(&mut self, id: ClientId, control: DaemonControl) -> Result<(), Refusal> {
        let Some(client) = self.clients.get_mut(id) else { return Ok(()) };
        if std::mem::replace(&mut client.relaying, true) {
            return Err(Refusal::new(ErrorCode::Unavailable, "the answer to an earlier daemon.control is still due"));
        }
        let layout = self.layout.clone();
        let inputs = self.inputs_in.clone();
        tokio::task::spawn_local(async move {
            let request_id = control.request_id.clone();
            let asked = tokio::time::timeout(ANSWER_WITHIN, ask(&layout, control)).await;
            let line = match asked {
                Ok(Ok(Some(line))) => line,
                Ok(_) | Err(_) => ServerEvent::error(
                    Some(request_id),
                    ErrorCode::Unavailable,
                    "the supervisor cannot be reached; `scv start` starts it",
                )
                .to_line(),
            };
            // The session may be gone, and the client with it.
            let _ = inputs.send(Input::Relayed { client: id, line }).await;
        });
        Ok(())
    }

    /// Passes the supervisor's answer on.
    pub(super) fn relayed(&mut self, id: ClientId, line: Vec<u8>) {
        if let Some(client) = self.clients.get_mut(id) {
            client.relaying = false;
            client.send_line(line);
        }
    }
}

/// The supervisor's answer as it came, newline included.
async fn ask(layout: &Layout, control: DaemonControl) -> Result<Option<Vec<u8>>, ClientError> {
    let mut supervisor = Client::connect(layout, "scv-worker", &[]).await?;
    supervisor.send(&ClientMessage::DaemonControl(control)).await?;
    Ok(supervisor.next_event().await?.map(|mut answer| {
        answer.line.push(b'\n');
        answer.line
    }))
}
