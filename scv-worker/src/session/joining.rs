//! A client joins: what it is told first, and what it becomes.

use shared::clock;
use shared::protocol::client::{self, ClientMessage, OnDisconnect};
use shared::protocol::server::{ApprovalRequest, Reply, ServerEvent, SessionStarted, TurnBody, TurnEvent};
use shared::protocol::{ErrorCode, limits};
use tokio::time::Instant;

use super::clients::Client;
use super::connection::{self, Connection};
use super::setup::client_context;
use super::{ClientId, Session};

impl Session {
    /// A client joins: its first line is `session.start` or `session.attach`.
    pub(super) fn connected(&mut self, connection: Connection) {
        let Connection { peer, features, io, mut first } = connection;
        let id = ClientId(self.next_client);
        self.next_client += 1;
        let rest = first.iter().position(|b| *b == b'\n').map_or(Vec::new(), |end| first.split_off(end + 1));
        let message = client::parse(&first);
        let out = match connection::run(id, io, rest, self.inputs_in.clone(), self.clients.room.clone()) {
            Ok(out) => out,
            Err(error) => {
                tracing::warn!(%error, "cannot serve a client");
                return;
            }
        };
        self.recovered_at = None;
        self.stay();
        if let Some(context) = message.as_ref().ok().and_then(|message| client_context(Some(message))) {
            self.take_key(context);
        }
        match message {
            Ok(ClientMessage::SessionStart(start)) => {
                let mut client = Client::live(out, peer, &features, start.request_id.clone(), self.state.seq);
                client.auto_approve = start.auto_approve;
                self.change_owner(start.on_disconnect.unwrap_or(self.meta.on_disconnect));
                client.reply(&self.started(&start.request_id));
                client.reply(&self.snapshot());
                // The same id again attaches: what was said before comes too.
                if self.state.seq > 0 && client.features.attach {
                    client.replay(&self.journal, 0, self.state_now());
                }
                self.clients.insert(id, client);
            }
            Ok(ClientMessage::SessionAttach(attach)) => {
                let mut client = Client::live(out, peer, &features, attach.request_id.clone(), self.state.seq);
                client.features.attach = true;
                client.auto_approve = attach.auto_approve.unwrap_or(false);
                self.change_owner(attach.on_disconnect.unwrap_or(self.meta.on_disconnect));
                let after_seq = if attach.observe { self.state.seq } else { attach.after_seq };
                client.replay(&self.journal, after_seq, self.state_now());
                self.clients.insert(id, client);
                self.broker.attend(self.clients.can_answer(), Instant::now());
                self.feed();
                let mut rest = self.open_approvals(after_seq);
                // For an observer the snapshot is the end of what is open.
                rest.insert(if attach.observe { rest.len() } else { 0 }, self.snapshot());
                for event in rest {
                    self.answer(id, &event);
                }
            }
            Ok(_) | Err(_) => {
                let client = Client::live(out, peer, &features, String::new(), self.state.seq);
                client.reply(&ServerEvent::fatal(
                    None,
                    ErrorCode::InvalidRequest,
                    "a session begins with session.start or session.attach",
                ));
                client.out().close();
                self.clients.insert(id, client);
            }
        }
        self.feed();
        self.say_state();
    }

    pub(super) fn change_owner(&mut self, on_disconnect: OnDisconnect) {
        if self.meta.on_disconnect != on_disconnect || self.meta.closed {
            self.meta.on_disconnect = on_disconnect;
            self.meta.closed = false;
            self.save_meta();
        }
    }

    fn started(&self, request_id: &str) -> ServerEvent {
        let tui = &self.config.tui;
        ServerEvent::Reply(Reply::SessionStarted(SessionStarted {
            request_id: request_id.to_owned(),
            session_id: self.id,
            cwd: self.meta.cwd.clone(),
            model: self.model.clone(),
            context_max_tokens: self.config.context.max_tokens,
            max_server_frame_bytes: limits::SERVER_FRAME_BYTES as u64,
            max_transcript_bytes: tui.max_transcript_bytes,
            max_transcript_items: tui.max_transcript_items,
            max_prompt_history_bytes: tui.max_prompt_history_bytes,
            max_prompt_history_items: tui.max_prompt_history_items,
        }))
    }

    /// Open approvals that the client has seen already are sent again, with the same id.
    fn open_approvals(&self, after_seq: u64) -> Vec<ServerEvent> {
        let Some(turn) = &self.state.turn else { return Vec::new() };
        self.broker
            .asked_until(after_seq, Instant::now())
            .map(|(request, left)| {
                let expires = clock::unix_ms().saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
                let request = ApprovalRequest { expires_unix_ms: Some(expires), ..request.clone() };
                ServerEvent::Turn(TurnEvent {
                    body: TurnBody::ApprovalRequested(request),
                    request_id: turn.prompt.request_id.clone(),
                    session_id: self.id,
                    turn_id: turn.turn_id.clone(),
                    seq: after_seq.min(self.state.seq),
                })
            })
            .collect()
    }
}
