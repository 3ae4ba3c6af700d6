//! What clients ask of a session: one method a message.

use shared::clock;
use shared::protocol::client::{
    self, ApprovalResolve, ClientMessage, OfSession, OnDisconnect, SessionPause, TurnCancel, TurnStart,
};
use shared::protocol::control::SessionState;
use shared::protocol::server::{Reply, ServerEvent, SessionBody};
use shared::protocol::{ErrorCode, ids, limits};

use super::record::{Prompt, Record};
use super::told::{By, Durable};
use super::{ClientId, Ended, Session, attachments};

/// Why a request was not done; the answer to it.
pub(super) struct Refusal {
    code: ErrorCode,
    message: String,
}

impl Refusal {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    /// The journal could not be written, so nothing was done.
    pub(super) fn unkept(what: &str, error: &std::io::Error) -> Self {
        Self::new(
            ErrorCode::InternalError,
            format!("cannot keep {what}: {error}; nothing was done, free some space and send it again"),
        )
    }
}

impl Session {
    /// A line of a client.
    pub(super) fn line(&mut self, id: ClientId, line: &[u8]) {
        let message = match client::parse(line) {
            Ok(message) => message,
            Err(bad) => return self.answer(id, &ServerEvent::error(bad.request_id, bad.code, bad.reason)),
        };
        let request_id = message.request_id().map(str::to_owned);
        if let Err(refusal) = self.handle(id, message) {
            let Refusal { code, message } = refusal;
            self.answer(id, &ServerEvent::error(request_id, code, message));
        }
    }

    /// A line that was too long.
    pub(super) fn too_long(&mut self, id: ClientId) {
        self.answer(id, &too_long());
    }

    fn handle(&mut self, id: ClientId, message: ClientMessage) -> Result<(), Refusal> {
        if let Some(named) = message.session_id()
            && named != self.id
        {
            return Err(Refusal::invalid("one session per connection; this connection belongs to another"));
        }
        match message {
            ClientMessage::TurnStart(start) => self.turn_start(id, start),
            ClientMessage::TurnCancel(cancel) => self.turn_cancel(&cancel),
            ClientMessage::ApprovalResolve(resolve) => self.approval_resolve(&resolve),
            ClientMessage::QueueUpdate(update) => self.queue_update(id, update),
            ClientMessage::QueueMove(moved) => self.queue_move(id, &moved),
            ClientMessage::QueueRemove(remove) => self.queue_remove(id, &remove),
            ClientMessage::SessionPause(pause) => self.session_pause(&pause),
            ClientMessage::SessionClear(clear) => self.session_clear(id, &clear),
            ClientMessage::SessionDetach(detach) => {
                self.session_detach(id, &detach);
                Ok(())
            }
            ClientMessage::SessionClose(close) => {
                self.session_close(id, &close);
                Ok(())
            }
            ClientMessage::DaemonControl(control) => self.relay(id, control),
            ClientMessage::Initialize(_) => Err(Refusal::invalid("this connection is initialized already")),
            ClientMessage::SessionStart(_) | ClientMessage::SessionAttach(_) => {
                Err(Refusal::invalid("one session per connection"))
            }
            // The parser has answered these.
            ClientMessage::Unknown => Ok(()),
        }
    }

    fn turn_start(&mut self, id: ClientId, start: TurnStart) -> Result<(), Refusal> {
        if self.leaving.is_some() {
            return Err(Refusal::new(ErrorCode::Unavailable, "the session is closing"));
        }
        check_prompt(&start.prompt, start.attachments.len())?;
        if let Some(prompt_id) = &start.prompt_id
            && self.answer_known(id, &start.request_id, prompt_id)
        {
            return Ok(());
        }
        self.check_key()?;
        if self.state.queue.len() >= limits::QUEUED_PROMPTS {
            return Err(Refusal::new(
                ErrorCode::QueueLimit,
                format!("{} prompts wait already, which is the limit", limits::QUEUED_PROMPTS),
            ));
        }
        let attachments = attachments::store(&self.dir, &start.attachments).map_err(Refusal::invalid)?;
        let prompt = Prompt {
            at: clock::unix_ms(),
            queue_id: ids::fresh(),
            prompt_id: start.prompt_id,
            request_id: id.qualify(&start.request_id),
            submitter: self.clients.get(id).map(|client| client.peer.name.clone()).unwrap_or_default(),
            text: start.prompt,
            attachments,
        };
        self.accept(prompt)
    }

    fn turn_cancel(&mut self, cancel: &TurnCancel) -> Result<(), Refusal> {
        match (&self.running, &self.state.turn) {
            (Some(running), Some(turn)) if turn.turn_id == cancel.turn_id => {
                running.cancel.cancel();
                Ok(())
            }
            _ => Err(Refusal::invalid("no turn of that id runs")),
        }
    }

    fn approval_resolve(&mut self, resolve: &ApprovalResolve) -> Result<(), Refusal> {
        if self.resolve(&resolve.approval_id, resolve.approved, By::Client, resolve.reason.as_deref()) {
            Ok(())
        } else {
            Err(Refusal::invalid("no approval of that id waits; it may have been answered already"))
        }
    }

    /// A turn without its key could only fail.
    fn check_key(&self) -> Result<(), Refusal> {
        if self.clients.lacks_key() {
            return Err(Refusal::new(ErrorCode::ProviderError, super::setup::KEY_IS_GONE));
        }
        Ok(())
    }

    fn session_pause(&mut self, pause: &SessionPause) -> Result<(), Refusal> {
        if !pause.paused && !self.state.queue.is_empty() {
            self.check_key()?;
        }
        self.keep(&[Record::Paused { paused: pause.paused }], Durable::Yes)
            .map_err(|error| Refusal::unkept("that", &error))?;
        self.clients.tell(&self.snapshot(), |_| true);
        if !pause.paused {
            self.resume_queue()?;
        }
        self.say_state();
        Ok(())
    }

    fn session_clear(&mut self, id: ClientId, clear: &OfSession) -> Result<(), Refusal> {
        if self.running.is_some() {
            return Err(Refusal::invalid("only an idle session can be cleared; cancel the turn first"));
        }
        self.tell_session(Vec::new(), SessionBody::Cleared {}, Some(id.qualify(&clear.request_id)), Durable::Yes)
            .map_err(|error| Refusal::unkept("that", &error))?;
        self.clients.tell(&self.snapshot(), |_| true);
        Ok(())
    }

    fn session_detach(&mut self, id: ClientId, detach: &OfSession) {
        self.change_owner(OnDisconnect::Keep);
        let reply = Reply::SessionDetached { request_id: detach.request_id.clone(), session_id: self.id };
        self.answer(id, &ServerEvent::Reply(reply));
        if let Some(client) = self.clients.get(id) {
            client.out().close();
        }
    }

    fn session_close(&mut self, id: ClientId, close: &OfSession) {
        if let Some(client) = self.clients.get_mut(id) {
            client.closing = Some(close.request_id.clone());
        }
        self.leave(Ended::Closed);
    }

    /// Answers one client.
    pub(super) fn answer(&self, id: ClientId, event: &ServerEvent) {
        if let Some(client) = self.clients.get(id) {
            client.reply(event);
        }
    }

    /// All waiting prompts.
    pub(super) fn snapshot(&self) -> ServerEvent {
        ServerEvent::Reply(Reply::QueueSnapshot {
            request_id: None,
            session_id: self.id,
            entries: self.state.queue.iter().map(super::state::Queued::entry).collect(),
            paused: self.state.paused,
        })
    }

    /// What the session does now.
    pub(super) fn state_now(&self) -> SessionState {
        if self.running.is_none() {
            SessionState::Idle
        } else if self.broker.len() > 0 {
            SessionState::Waiting
        } else {
            SessionState::Working
        }
    }

    /// Whether somebody approves everything unasked.
    pub(super) fn approves_unasked(&self) -> bool {
        self.meta.auto_approve || self.clients.iter().any(|(_, client)| client.auto_approve)
    }
}

/// The answer to a line that was too long.
pub(super) fn too_long() -> ServerEvent {
    let text = format!("a frame may have at most {} bytes; this one was skipped", limits::CLIENT_FRAME_BYTES);
    ServerEvent::error(None, ErrorCode::InvalidRequest, text)
}

/// Whether a prompt may be sent, or put in the place of a waiting one.
pub(super) fn check_prompt(text: &str, attachments: usize) -> Result<(), Refusal> {
    if text.len() > limits::PROMPT_BYTES {
        return Err(Refusal::invalid(format!("a prompt may have at most {} KiB", limits::PROMPT_BYTES >> 10)));
    }
    if text.trim().is_empty() && attachments == 0 {
        return Err(Refusal::invalid("the prompt is empty"));
    }
    Ok(())
}
