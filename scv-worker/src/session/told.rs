//! Journal, then state, then clients: the only way by which anything is told.

use std::io;

use shared::clock;
use shared::protocol::server::{Reply, ServerEvent, SessionBody, SessionEvent, TurnBody, TurnEvent};
use tokio::time::Instant;

use super::record::Record;
use super::state::SEQ_STEP;
use super::{Session, journal::Journal};
use crate::approvals::{Answer, Waiting};
use crate::turn::sink::FromTurn;

/// Whether records have to be on the disk before anybody is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durable {
    /// They have to.
    Yes,
    /// A death of this process loses nothing; a power cut may.
    No,
}

/// Who answered an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Client,
    Timeout,
    Cancel,
}

impl By {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Timeout => "timeout",
            Self::Cancel => "cancel",
        }
    }
}

impl Session {
    /// Journals records and applies them to the state. On failure neither happened.
    pub(super) fn keep(&mut self, records: &[Record], durable: Durable) -> io::Result<()> {
        write(&mut self.journal, &mut self.owed, records, durable)?;
        for record in records {
            self.state.apply(record);
        }
        Ok(())
    }

    /// Takes the next number, covered by a ceiling in the journal.
    pub(super) fn take_seq(&mut self) -> io::Result<u64> {
        let seq = self.state.seq + 1;
        // One number stays in reserve, for an end that has to be told while nothing can be written.
        if seq >= self.state.ceiling {
            let ceiling = (seq + 1).next_multiple_of(SEQ_STEP);
            self.keep(&[Record::Ceiling { seq: ceiling }], Durable::No)?;
        }
        self.state.seq = seq;
        Ok(seq)
    }

    /// Does `what`, which takes numbers. If it fails nobody was told, and the numbers are free
    /// again: a gap would say to every client that it missed something.
    pub(super) fn taking_numbers(&mut self, what: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        let last = self.state.seq;
        what(self).inspect_err(|_| self.state.seq = last)
    }

    /// Tells an event of the running turn.
    pub(super) fn tell(&mut self, body: TurnBody, durable: Durable) -> io::Result<()> {
        self.tell_with(Vec::new(), vec![body], durable)
    }

    /// Journals `before` and the events of `bodies` in one write, then tells the events.
    pub(super) fn tell_with(&mut self, before: Vec<Record>, bodies: Vec<TurnBody>, durable: Durable) -> io::Result<()> {
        self.taking_numbers(|session| session.keep_and_tell(before, bodies, durable))
    }

    fn keep_and_tell(&mut self, before: Vec<Record>, bodies: Vec<TurnBody>, durable: Durable) -> io::Result<()> {
        let Some(turn) = &self.state.turn else { return Ok(()) };
        let (turn_id, request_id) = (turn.turn_id.clone(), turn.prompt.request_id.clone());
        let mut records = before;
        let mut events = Vec::new();
        for body in bodies {
            let seq = self.take_seq()?;
            let transient = body.is_transient();
            let event =
                TurnEvent { body, request_id: request_id.clone(), session_id: self.id, turn_id: turn_id.clone(), seq };
            if !transient {
                records.push(Record::Turn { at: clock::unix_ms(), event: event.clone() });
            }
            events.push((ServerEvent::Turn(event), seq));
        }
        if !records.is_empty() {
            self.keep(&records, durable)?;
        }
        for (event, seq) in events {
            self.clients.deliver(&event, seq, &self.journal);
        }
        Ok(())
    }

    /// Tells an event outside a turn; `before` is journaled in the same write.
    pub(super) fn tell_session(
        &mut self,
        mut before: Vec<Record>,
        body: SessionBody,
        request_id: Option<String>,
        durable: Durable,
    ) -> io::Result<()> {
        self.taking_numbers(|session| {
            let seq = session.take_seq()?;
            let event = SessionEvent { body, request_id, session_id: session.id, seq };
            before.push(Record::Session { at: clock::unix_ms(), event: event.clone() });
            session.keep(&before, durable)?;
            session.clients.deliver(&ServerEvent::Session(event), seq, &session.journal);
            Ok(())
        })
    }

    /// The text so far of an answer that streams now, for clients that come in the middle.
    pub(super) fn partial(&self) -> Option<ServerEvent> {
        let running = self.running.as_ref().filter(|running| !running.partial.is_empty())?;
        let turn = self.state.turn.as_ref()?;
        Some(ServerEvent::Turn(TurnEvent {
            body: TurnBody::AssistantDelta { content: running.partial.clone() },
            request_id: turn.prompt.request_id.clone(),
            session_id: self.id,
            turn_id: turn.turn_id.clone(),
            seq: self.state.seq,
        }))
    }

    /// Takes a message of the running turn.
    pub(super) fn turn_says(&mut self, message: Option<FromTurn>) {
        let Some(message) = message else {
            // The turn's task died without a last word: a fault of ours.
            self.end_turn(TurnBody::Failed {
                code: shared::protocol::ErrorCode::InternalError,
                message: "the turn ended without saying how; the worker's log has the cause".to_owned(),
                origin: None,
            });
            return;
        };
        // In the journal before the result that names them.
        if self.conversations.has_changed().unwrap_or(false)
            && let Err(error) = self.keep_conversations()
        {
            self.journal_failed(&error);
            return;
        }
        let kept = match message {
            FromTurn::Tell { body, durable, done } => {
                self.note_progress(&body);
                let durable = if durable { Durable::Yes } else { Durable::No };
                self.tell(body, durable).map(|()| answer(done))
            }
            FromTurn::Notice { text } => {
                self.notice(text);
                Ok(())
            }
            FromTurn::Response { items, usage, told, done } => {
                if let Some(running) = &mut self.running {
                    running.partial.clear();
                }
                self.tell_with(vec![Record::Response { items, usage }], told, Durable::No).map(|()| answer(Some(done)))
            }
            FromTurn::Ask { question, answer } => self.ask(question, answer),
            FromTurn::Ended { body } => {
                self.end_turn(body);
                Ok(())
            }
        };
        if let Err(error) = kept {
            self.journal_failed(&error);
        }
    }

    /// A conversation with an agent began or went on: the agent may work for hours before its turn
    /// says anything more, and whoever dies meanwhile has to know it again.
    pub(super) fn conversations_changed(&mut self) {
        if let Err(error) = self.keep_conversations() {
            self.journal_failed(&error);
        }
    }

    fn keep_conversations(&mut self) -> io::Result<()> {
        let snapshot = serde_json::to_value(&*self.conversations.borrow_and_update())?;
        self.keep(&[Record::Conversations { snapshot }], Durable::No)
    }

    /// The journal cannot be written: the turn ends, and everybody is told why.
    pub(super) fn journal_failed(&mut self, error: &io::Error) {
        tracing::error!(%error, "cannot write the session's journal");
        if self.running.is_none() {
            return;
        }
        self.end_turn(TurnBody::Failed {
            code: shared::protocol::ErrorCode::InternalError,
            message: format!(
                "cannot write the session's journal: {error}; the turn was stopped, free some space and go on"
            ),
            origin: None,
        });
    }

    /// Tells the end of a turn that cannot be journaled now; the record is written with the next one.
    pub(super) fn tell_unkept(&mut self, body: TurnBody, error: &io::Error) {
        tracing::error!(%error, "the end of a turn is not in the journal yet");
        let Some(turn) = &self.state.turn else { return };
        let event = TurnEvent {
            body,
            request_id: turn.prompt.request_id.clone(),
            session_id: self.id,
            turn_id: turn.turn_id.clone(),
            seq: self.state.seq + 1,
        };
        let record = Record::Turn { at: clock::unix_ms(), event: event.clone() };
        self.state.apply(&record);
        self.owed.push(record);
        let seq = event.seq;
        self.clients.deliver(&ServerEvent::Turn(event), seq, &self.journal);
    }

    /// Writes what could not be written when it was told; whether nothing is owed any more.
    pub(super) fn write_owed(&mut self) -> bool {
        if self.owed.is_empty() {
            return true;
        }
        let written = write(&mut self.journal, &mut self.owed, &[], Durable::Yes);
        written.inspect_err(|error| tracing::warn!(%error, "the end of a turn is still not in the journal")).is_ok()
    }

    fn note_progress(&mut self, body: &TurnBody) {
        let Some(running) = &mut self.running else { return };
        match body {
            TurnBody::AssistantDelta { content } => running.partial.push_str(content),
            TurnBody::ToolStarted { name, .. } => {
                running.activity.clone_from(name);
                self.say_state();
            }
            _ => {}
        }
    }

    fn notice(&mut self, text: String) {
        let Some(turn) = &self.state.turn else { return };
        let event = ServerEvent::Reply(Reply::TurnNotice { session_id: self.id, turn_id: turn.turn_id.clone(), text });
        self.clients.tell(&event, |client| client.features.notices);
    }

    fn ask(
        &mut self,
        question: crate::turn::sink::Question,
        answer: tokio::sync::oneshot::Sender<Answer>,
    ) -> io::Result<()> {
        if self.approves_unasked() {
            let _ = answer.send(Answer::Approved);
            return Ok(());
        }
        let patience = self.broker.patience();
        let request = shared::protocol::server::ApprovalRequest {
            approval_id: shared::protocol::ids::fresh(),
            call_id: question.call_id,
            name: question.name,
            risk: question.risk,
            cwd: self.meta.cwd.clone(),
            summary: question.summary,
            expires_unix_ms: Some(
                clock::unix_ms().saturating_add(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX)),
            ),
        };
        self.tell(TurnBody::ApprovalRequested(request.clone()), Durable::Yes)?;
        self.broker.insert(Waiting { request, answer, since: Instant::now(), seq: self.state.seq });
        self.say_state();
        Ok(())
    }

    /// Answers an approval; whether it was still open. A client that says no may say why.
    pub(super) fn resolve(&mut self, approval_id: &str, approved: bool, by: By, reason: Option<&str>) -> bool {
        let Some(waiting) = self.broker.take(approval_id) else { return false };
        let record = Record::Approval { approval_id: approval_id.to_owned(), approved, by: by.word().to_owned() };
        if let Err(error) = self.keep(&[record], Durable::Yes) {
            self.journal_failed(&error);
            return true;
        }
        let event = ServerEvent::Reply(Reply::ApprovalResolved {
            session_id: self.id,
            approval_id: approval_id.to_owned(),
            approved,
            by: by.word().to_owned(),
        });
        self.clients.tell(&event, |client| client.features.approvals);
        let answer = match (approved, by) {
            (true, _) => Answer::Approved,
            (false, By::Client) => Answer::Denied(crate::approvals::denial(reason)),
            (false, By::Timeout | By::Cancel) => Answer::Denied(crate::approvals::NOBODY.to_owned()),
        };
        // The turn may have been cancelled meanwhile; then nobody waits for the answer.
        let _ = waiting.answer.send(answer);
        self.say_state();
        true
    }
}

fn answer(done: Option<tokio::sync::oneshot::Sender<()>>) {
    if let Some(done) = done {
        // A cancelled turn no longer waits.
        let _ = done.send(());
    }
}

fn write(journal: &mut Journal, owed: &mut Vec<Record>, records: &[Record], durable: Durable) -> io::Result<()> {
    if !owed.is_empty() {
        journal.append(owed)?;
        owed.clear();
    }
    let before = journal.len();
    journal.append(records)?;
    if durable == Durable::Yes
        && let Err(error) = journal.sync()
    {
        // Nobody was told, so it must not come back after a restart either.
        journal.cut(before);
        return Err(error);
    }
    Ok(())
}
