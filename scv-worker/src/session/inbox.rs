//! What clients ask of a session: one method a message.

use std::rc::Rc;

use shared::clock;
use shared::protocol::client::{
    self, ApprovalResolve, ClientMessage, OfSession, OnDisconnect, SessionPause, TurnCancel, TurnStart,
};
use shared::protocol::control::SessionState;
use shared::protocol::ids;
use shared::protocol::server::{Reply, ServerEvent, SessionBody, SessionEvent, SessionStarted, TurnBody, TurnEvent};
use shared::protocol::{ErrorCode, limits};
use tokio_util::sync::CancellationToken;

use super::clients::Client;
use super::connection::{self, Connection};
use super::record::{Prompt, Record};
use super::told::{By, Durable};
use super::{ClientId, Ended, Running, Session, attachments};
use crate::turn::{Turn, sink::Sink};

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
                client.replay(&self.journal, attach.after_seq, self.state_now());
                let again: Vec<_> = self.open_approvals(attach.after_seq);
                self.clients.insert(id, client);
                self.feed();
                if let Some(client) = self.clients.get(id) {
                    client.reply(&self.snapshot());
                    for event in again {
                        client.reply(&event);
                    }
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

    fn change_owner(&mut self, on_disconnect: OnDisconnect) {
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
            .asked_until(after_seq)
            .map(|request| {
                ServerEvent::Turn(TurnEvent {
                    body: TurnBody::ApprovalRequested(request.clone()),
                    request_id: turn.prompt.request_id.clone(),
                    session_id: self.id,
                    turn_id: turn.turn_id.clone(),
                    seq: after_seq.min(self.state.seq),
                })
            })
            .collect()
    }

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
        let text = format!("a frame may have at most {} bytes; this one was skipped", limits::CLIENT_FRAME_BYTES);
        self.answer(id, &ServerEvent::error(None, ErrorCode::InvalidRequest, text));
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

    /// Keeps the prompt; then it runs or waits.
    fn accept(&mut self, prompt: Prompt) -> Result<(), Refusal> {
        let unkept = |error: std::io::Error| Refusal::unkept("the prompt", &error);
        self.make_durable().map_err(unkept)?;
        self.want().map_err(unkept)?;
        let kept = if self.running.is_some() {
            let request_id = prompt.request_id.clone();
            let entry = super::state::Queued { prompt: prompt.clone(), revision: 1 }.entry();
            let position = self.state.queue.len();
            let body = SessionBody::QueueEnqueued { entry, position };
            self.tell_session(vec![Record::Prompt(prompt)], body, Some(request_id), Durable::Yes)
        } else {
            // Also while others wait paused: whoever asks now waits for the answer.
            let queue_id = prompt.queue_id.clone();
            self.begin(vec![Record::Prompt(prompt)], &queue_id, false)
        };
        kept.map_err(|error| {
            self.unwant();
            unkept(error)
        })?;
        self.say_state();
        Ok(())
    }

    /// Answers a prompt that was sent before with the state of the first one.
    fn answer_known(&mut self, id: ClientId, request_id: &str, prompt_id: &uuid::Uuid) -> bool {
        let Some(known) = self.state.known(prompt_id) else { return false };
        let event = if let Some(outcome) = &known.outcome {
            let mut outcome = outcome.clone();
            request_id.clone_into(&mut outcome.request_id);
            ServerEvent::Turn(outcome)
        } else if let Some((position, queued)) = self.state.queued(&known.queue_id) {
            ServerEvent::Session(SessionEvent {
                body: SessionBody::QueueEnqueued { entry: queued.entry(), position },
                request_id: Some(request_id.to_owned()),
                session_id: self.id,
                seq: self.state.seq,
            })
        } else if let Some(turn) = self.state.turn.as_ref().filter(|turn| turn.prompt.queue_id == known.queue_id) {
            ServerEvent::Turn(TurnEvent {
                body: TurnBody::Started { origin: None },
                request_id: request_id.to_owned(),
                session_id: self.id,
                turn_id: turn.turn_id.clone(),
                seq: self.state.seq,
            })
        } else {
            // It was removed from the queue.
            ServerEvent::error(Some(request_id.to_owned()), ErrorCode::InvalidRequest, "this prompt was removed")
        };
        self.answer(id, &event);
        true
    }

    /// Turns a waiting prompt into the running turn: one write, durable, before anybody hears of it.
    fn begin(&mut self, mut records: Vec<Record>, queue_id: &str, waited: bool) -> std::io::Result<()> {
        let at = clock::unix_ms();
        let turn_id = ids::fresh();
        let prompt =
            records.iter().find_map(|record| if let Record::Prompt(prompt) = record { Some(prompt) } else { None });
        let request_id = prompt
            .or_else(|| self.state.queued(queue_id).map(|(_, queued)| &queued.prompt))
            .map(|prompt| prompt.request_id.clone())
            .unwrap_or_default();
        let mut events = Vec::new();
        if waited {
            let body = SessionBody::QueueDequeued { queue_id: queue_id.to_owned(), turn_id: turn_id.clone() };
            let event = SessionEvent { body, request_id: None, session_id: self.id, seq: self.take_seq()? };
            records.push(Record::Session { at, event: event.clone() });
            events.push(ServerEvent::Session(event));
        }
        records.push(Record::Begin { at, turn_id: turn_id.clone(), queue_id: queue_id.to_owned() });
        let body = TurnBody::Started { origin: None };
        let event = TurnEvent { body, request_id, session_id: self.id, turn_id, seq: self.take_seq()? };
        records.push(Record::Turn { at, event: event.clone() });
        events.push(ServerEvent::Turn(event));
        self.keep(&records, Durable::Yes)?;
        for event in events {
            self.clients.deliver(&event, event.seq().unwrap_or(0), &self.journal);
        }
        self.run_turn();
        Ok(())
    }

    fn run_turn(&mut self) {
        let (sink, events) = Sink::new();
        let cancel = CancellationToken::new();
        let turn = Turn {
            items: self.state.items.clone(),
            model: self.model.clone(),
            instructions: self.instructions.clone(),
            provider: Rc::clone(&self.provider),
            tools: Rc::clone(&self.tools),
            policy: self.config.tools.approval_policy,
            mask: Rc::clone(&self.mask),
            max_steps: self.config.agent.max_steps,
            cancel: cancel.clone(),
        };
        let task = tokio::task::spawn_local(turn.run(sink));
        self.running = Some(Running { cancel, events, partial: String::new(), activity: String::new(), task });
    }

    /// The turn is over: tell it, then the next prompt.
    pub(super) fn end_turn(&mut self, body: TurnBody) {
        for waiting in self.broker.drain() {
            let approval_id = waiting.request.approval_id;
            let event = ServerEvent::Reply(Reply::ApprovalResolved {
                session_id: self.id,
                approval_id,
                approved: false,
                by: By::Cancel.word().to_owned(),
            });
            self.clients.tell(&event, |client| client.features.approvals);
        }
        let body = self.as_it_ended(body);
        let failed = matches!(body, TurnBody::Failed { .. });
        if let Some(running) = self.running.take() {
            running.task.abort();
        }
        let usage = self.state.turn.as_ref().map(|turn| turn.usage);
        if let Err(error) = self.tell(body.clone(), Durable::Yes) {
            self.tell_unkept(body, &error);
        }
        self.idle_since = tokio::time::Instant::now();
        if failed && !self.state.queue.is_empty() && !self.state.paused {
            // The next one would most likely fail as well.
            self.pause(true);
        }
        self.write_usage(usage);
        self.next_turn();
        self.compact();
        self.let_half_closed_go();
        self.say_state();
    }

    /// Starts the next waiting prompt, if one may run.
    pub(super) fn next_turn(&mut self) {
        let may_run = self.running.is_none() && self.leaving.is_none() && !self.state.paused;
        let Some(queued) = self.state.queue.front().filter(|_| may_run) else {
            if self.running.is_none() {
                self.unwant();
            }
            return;
        };
        let queue_id = queued.prompt.queue_id.clone();
        if let Err(error) = self.begin(Vec::new(), &queue_id, true) {
            self.journal_failed(&error);
        }
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

    fn session_pause(&mut self, pause: &SessionPause) -> Result<(), Refusal> {
        self.keep(&[Record::Paused { paused: pause.paused }], Durable::Yes)
            .map_err(|error| Refusal::unkept("that", &error))?;
        self.clients.tell(&self.snapshot(), |_| true);
        if !pause.paused {
            self.resume_queue()?;
        }
        self.say_state();
        Ok(())
    }

    /// Resuming an idle session starts its next prompt.
    fn resume_queue(&mut self) -> Result<(), Refusal> {
        if self.running.is_some() {
            return Ok(());
        }
        let Some(queued) = self.state.queue.front() else { return Ok(()) };
        let queue_id = queued.prompt.queue_id.clone();
        self.want()
            .and_then(|()| self.begin(Vec::new(), &queue_id, true))
            .map_err(|error| Refusal::unkept("that", &error))
    }

    pub(super) fn pause(&mut self, paused: bool) {
        match self.keep(&[Record::Paused { paused }], Durable::No) {
            Ok(()) => self.clients.tell(&self.snapshot(), |_| true),
            Err(error) => tracing::warn!(%error, "cannot keep that the queue is paused"),
        }
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
