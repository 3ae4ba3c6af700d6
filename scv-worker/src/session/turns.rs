//! From an accepted prompt to the end of its turn, and on to the next one.

use std::rc::Rc;

use shared::clock;
use shared::protocol::server::{Reply, ServerEvent, SessionBody, SessionEvent, TurnBody, TurnEvent, UNNUMBERED};
use shared::protocol::{ErrorCode, ids};
use tokio_util::sync::CancellationToken;

use super::inbox::Refusal;
use super::record::{Prompt, Record};
use super::told::{By, Durable};
use super::{ClientId, Running, Session};
use crate::turn::{Turn, sink::Sink};

impl Session {
    /// Keeps the prompt; then it runs or waits.
    pub(super) fn accept(&mut self, prompt: Prompt) -> Result<(), Refusal> {
        let unkept = |error: std::io::Error| Refusal::unkept("the prompt", &error);
        if !self.durable {
            // So that a list has it also if this worker is killed.
            self.meta.last_prompt = Some(super::state::headline(&prompt.text));
        }
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

    /// Answers a prompt that was sent before with the state of the first one. The answer is for this
    /// client alone and takes no number.
    pub(super) fn answer_known(&mut self, id: ClientId, request_id: &str, prompt_id: &uuid::Uuid) -> bool {
        let Some(known) = self.state.known(prompt_id) else { return false };
        let event = if let Some(outcome) = &known.outcome {
            let mut outcome = outcome.clone();
            request_id.clone_into(&mut outcome.request_id);
            outcome.seq = UNNUMBERED;
            ServerEvent::Turn(outcome)
        } else if let Some((position, queued)) = self.state.queued(&known.queue_id) {
            ServerEvent::Session(SessionEvent {
                body: SessionBody::QueueEnqueued { entry: queued.entry(), position },
                request_id: Some(request_id.to_owned()),
                session_id: self.id,
                seq: UNNUMBERED,
            })
        } else if let Some(turn) = self.state.turn.as_ref().filter(|turn| turn.prompt.queue_id == known.queue_id) {
            ServerEvent::Turn(TurnEvent {
                body: TurnBody::Started { origin: None },
                request_id: request_id.to_owned(),
                session_id: self.id,
                turn_id: turn.turn_id.clone(),
                seq: UNNUMBERED,
            })
        } else {
            // It was removed from the queue.
            ServerEvent::error(Some(request_id.to_owned()), ErrorCode::InvalidRequest, "this prompt was removed")
        };
        self.answer(id, &event);
        true
    }

    /// Turns a waiting prompt into the running turn: one write, durable, before anybody hears of it.
    pub(super) fn begin(&mut self, records: Vec<Record>, queue_id: &str, waited: bool) -> std::io::Result<()> {
        self.taking_numbers(|session| session.keep_the_begin(records, queue_id, waited))?;
        self.run_turn();
        Ok(())
    }

    fn keep_the_begin(&mut self, mut records: Vec<Record>, queue_id: &str, waited: bool) -> std::io::Result<()> {
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

    /// Resuming an idle session starts its next prompt.
    pub(super) fn resume_queue(&mut self) -> Result<(), Refusal> {
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
}
