//! Follows one session from its opening to the end of our turn. Pure: events in, acts out.

pub(super) mod answer;
pub(super) mod calls;

use shared::protocol::client::{QueueRemove, SessionPause, TurnCancel, TurnStart};
use shared::protocol::server::{Reply, SessionBody, SessionEvent, TurnBody, TurnEvent};
use shared::protocol::{ClientMessage, ErrorCode, ServerEvent, SessionId};
use tokio::time::Instant;

use self::answer::Stream;
use self::calls::Calls;
use super::ask::{Answer, Question};
use super::end::End;
use super::open::Opening;
use crate::output;

/// What the shell has to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Act {
    /// Text of the answer.
    Answer(String),
    /// The answer's line ends.
    EndLine,
    /// A line about what happens.
    Say(String),
    /// A message for the server.
    Send(Box<ClientMessage>),
    /// Somebody has to decide.
    Ask(Box<Question>),
    /// A decision for the server.
    Resolve(Answer),
    /// An approval is no longer open.
    Settled(String),
    /// It is over.
    End(End),
}

/// Who decides what an event means: [`Follow`] for a prompt of our own, or a
/// [`Watch`](super::watch::Watch).
pub(super) trait Next {
    /// Whether the session was opened.
    fn is_open(&self) -> bool;
    /// Whether Ctrl+C was pressed.
    fn is_interrupted(&self) -> bool;
    /// What goes on now, in one line.
    fn status(&self, now: Instant) -> Option<String>;
    /// Ctrl+C.
    fn interrupt(&mut self, request_id: String) -> Vec<Act>;
    /// The connection was lost and there is a new one: the message that opens it, with `open` for
    /// a session that was not opened yet.
    fn attach_again(&mut self, open: &Opening, request_ids: &mut dyn FnMut() -> String) -> ClientMessage;
    /// An event of the server.
    fn event(&mut self, event: ServerEvent, now: Instant) -> Vec<Act>;
}

/// Where we stand.
#[derive(Debug)]
enum State {
    /// The session is being opened.
    Opening { request_id: String },
    /// The prompt was sent.
    Sent,
    /// The prompt waits in the session's queue.
    Queued { queue_id: String, revision: u64 },
    /// Its turn runs.
    Running { turn_id: String, since: Instant },
}

/// What we know of the session and our turn.
#[derive(Debug)]
pub(super) struct Follow {
    session_id: SessionId,
    /// Of our `turn.start`; its events repeat it, on the connection that sent it.
    request_id: String,
    /// What identifies the prompt, on any connection.
    prompt: Box<TurnStart>,
    /// Our turn, once it is known.
    turn_id: Option<String>,
    /// The request that attaches again after the connection was lost.
    attaching: Option<String>,
    /// Whether a turn that is replayed may be ours.
    is_unsure: bool,
    /// Events of turns that may be ours.
    replayed: Vec<TurnEvent>,
    state: State,
    stream: Stream,
    calls: Calls,
    denied: u32,
    interrupted: bool,
    /// The queue as the last snapshot had it.
    paused: bool,
    /// The newest end of a turn before ours, if that turn died with its worker.
    crashed_before: Option<String>,
}

impl Follow {
    /// A session that `open` opens, in which `prompt` is to run.
    pub(super) fn new(session_id: SessionId, open: &ClientMessage, request_id: String, prompt: String) -> Self {
        let turn_start = TurnStart {
            request_id: request_id.clone(),
            session_id,
            prompt,
            attachments: Vec::new(),
            prompt_id: Some(uuid::Uuid::now_v7()),
        };
        Self {
            session_id,
            request_id,
            prompt: Box::new(turn_start),
            turn_id: None,
            attaching: None,
            is_unsure: false,
            replayed: Vec::new(),
            state: State::Opening { request_id: open.request_id().unwrap_or_default().to_owned() },
            stream: Stream::default(),
            calls: Calls::default(),
            denied: 0,
            interrupted: false,
            paused: false,
            crashed_before: None,
        }
    }

    /// Whether our turn has started.
    pub(super) fn has_turn(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// An event of our turn. The first one after the connection was lost tells which of the turns
    /// that were replayed meanwhile is ours.
    fn our_turn_at_last(&mut self, event: TurnEvent, gap: bool, now: Instant) -> Vec<Act> {
        let ours = event.turn_id.clone();
        let mut acts = Vec::new();
        let (starts, event) = match event.body {
            TurnBody::Started { .. } => (Some(event), None),
            _ => (None, Some(event)),
        };
        acts.extend(starts.into_iter().flat_map(|event| self.our_turn(event, gap, now)));
        let replayed = std::mem::take(&mut self.replayed).into_iter().filter(|event| event.turn_id == ours);
        acts.extend(replayed.flat_map(|event| self.our_turn(event, false, now)));
        acts.extend(event.into_iter().flat_map(|event| self.our_turn(event, gap, now)));
        acts
    }

    fn our_turn(&mut self, event: TurnEvent, gap: bool, now: Instant) -> Vec<Act> {
        match event.body {
            TurnBody::Started { .. } => {
                self.turn_id = Some(event.turn_id.clone());
                self.is_unsure = false;
                self.state = State::Running { turn_id: event.turn_id.clone(), since: now };
                let before = self.crashed_before.take();
                let before = before.map(|why| format!("the turn before this one did not end: {why}"));
                before.into_iter().map(Act::Say).collect()
            }
            TurnBody::AssistantDelta { content } => self.stream.delta(content, gap),
            TurnBody::AssistantCompleted { content } => self.stream.completed(&content),
            TurnBody::ToolProposed { call_id, name, arguments } => {
                self.calls.proposed(call_id, &name, &arguments);
                Vec::new()
            }
            TurnBody::ApprovalRequested(request) => {
                vec![Act::Ask(Box::new(Question { session_id: event.session_id, request }))]
            }
            TurnBody::ToolStarted { call_id, name, limit_ms, .. } => {
                vec![self.calls.started(&call_id, &name, limit_ms, now)]
            }
            TurnBody::ToolProgress { call_id, text } => self.calls.progress(&call_id, &text),
            TurnBody::ToolCompleted(completed) => {
                if completed.error == Some(shared::protocol::server::ToolErrorKind::Denied) {
                    self.denied += 1;
                }
                vec![self.calls.completed(&completed, now)]
            }
            TurnBody::ContextCompacted { before_tokens, after_tokens, .. } => {
                vec![Act::Say(format!("older messages were summarised: {before_tokens} → {after_tokens} tokens"))]
            }
            TurnBody::Completed { .. } => vec![Act::EndLine, Act::End(End::Completed { denied: self.denied })],
            TurnBody::Cancelled {} if self.interrupted => vec![Act::EndLine, Act::End(End::Interrupted)],
            TurnBody::Cancelled {} => vec![Act::EndLine, Act::End(End::Cancelled)],
            TurnBody::Failed { code, message, .. } => vec![Act::EndLine, Act::End(End::Failed { code, message })],
        }
    }

    /// Turns of others, and those of a replay: only how the newest one ended matters.
    fn other_turn(&mut self, event: TurnEvent) {
        if self.is_unsure {
            self.replayed.push(event.clone());
        }
        match event.body {
            TurnBody::Failed { code: ErrorCode::SessionCrashed, message, .. } => self.crashed_before = Some(message),
            body if body.is_terminal() => self.crashed_before = None,
            _ => {}
        }
    }

    fn session(&mut self, event: SessionEvent) -> Vec<Act> {
        let ours = event.request_id.as_deref() == Some(self.request_id.as_str());
        match event.body {
            SessionBody::QueueEnqueued { entry, position } if ours => {
                self.state = State::Queued { queue_id: entry.queue_id.clone(), revision: entry.revision };
                match (self.paused, position) {
                    (true, 0) => vec![self.resume()],
                    (true, waiting) => {
                        let request_id = format!("remove-{}", self.request_id);
                        let session_id = self.session_id;
                        let (queue_id, revision) = (entry.queue_id, entry.revision);
                        let remove = QueueRemove { request_id, session_id, queue_id, revision };
                        vec![send(ClientMessage::QueueRemove(remove)), Act::End(End::Paused { waiting })]
                    }
                    (false, 0) => vec![Act::Say("waiting for the turn that runs".into())],
                    (false, n) => vec![Act::Say(format!("waiting for the turn that runs and {n} prompts"))],
                }
            }
            SessionBody::QueueDequeued { queue_id, turn_id } if self.is_our_entry(&queue_id) => {
                self.turn_id = Some(turn_id);
                self.state = State::Sent;
                Vec::new()
            }
            SessionBody::QueueUpdated { entry } | SessionBody::QueueMoved { entry, .. }
                if self.is_our_entry(&entry.queue_id) =>
            {
                self.state = State::Queued { queue_id: entry.queue_id, revision: entry.revision };
                Vec::new()
            }
            SessionBody::QueueRemoved { queue_id } if self.is_our_entry(&queue_id) => {
                vec![Act::End(if self.interrupted { End::Interrupted } else { End::Cancelled })]
            }
            SessionBody::Trimmed { removed_messages, .. } => {
                vec![Act::Say(format!("the {removed_messages} oldest messages left the history"))]
            }
            _ => Vec::new(),
        }
    }

    fn reply(&mut self, reply: Reply) -> Vec<Act> {
        match reply {
            Reply::SessionStarted(started) if self.is_opening(&started.request_id) => self.open(None),
            Reply::SessionAttached(attached) if self.is_opening(&attached.request_id) => self.open(attached.note),
            Reply::SessionAttached(attached) if self.attaching.as_ref() == Some(&attached.request_id) => {
                self.attaching = None;
                // Whether it was taken is not known; the session knows the prompt by its id.
                if self.is_unsure {
                    return vec![send(ClientMessage::TurnStart(self.prompt.as_ref().clone()))];
                }
                Vec::new()
            }
            Reply::QueueSnapshot { paused, .. } => {
                self.paused = paused;
                Vec::new()
            }
            Reply::TurnNotice { text, .. } => vec![Act::Say(text)],
            Reply::ApprovalResolved { approval_id, approved, by, .. } => {
                let mut acts = vec![Act::Settled(approval_id)];
                if !approved && by == "timeout" {
                    acts.push(Act::Say("denied: nobody answered in time".into()));
                }
                acts
            }
            Reply::SessionClosed { .. } => vec![Act::End(End::Closed)],
            // Only whether it ends us matters: an approval that somebody else answered first is no error of ours.
            Reply::Error(error) => {
                let is_ours =
                    |id: &str| self.is_opening(id) || id == self.request_id || self.attaching.as_deref() == Some(id);
                let about_us = error.request_id.as_deref().is_some_and(is_ours);
                if error.fatal || about_us { vec![Act::End(End::Refused(error))] } else { Vec::new() }
            }
            _ => Vec::new(),
        }
    }

    fn is_opening(&self, id: &str) -> bool {
        matches!(&self.state, State::Opening { request_id, .. } if request_id == id)
    }

    fn is_ours(&self, event: &TurnEvent) -> bool {
        event.request_id == self.request_id || self.turn_id.as_ref() == Some(&event.turn_id)
    }

    fn is_our_entry(&self, id: &str) -> bool {
        matches!(&self.state, State::Queued { queue_id, .. } if queue_id == id)
    }

    fn open(&mut self, note: Option<String>) -> Vec<Act> {
        if !matches!(self.state, State::Opening { .. }) {
            return Vec::new();
        }
        self.state = State::Sent;
        let mut acts: Vec<Act> = note.into_iter().map(Act::Say).collect();
        acts.push(send(ClientMessage::TurnStart(self.prompt.as_ref().clone())));
        acts
    }

    /// A queue that was paused by a crash goes on when our prompt is the only one in it.
    fn resume(&self) -> Act {
        let request_id = format!("resume-{}", self.request_id);
        send(ClientMessage::SessionPause(SessionPause { request_id, session_id: self.session_id, paused: false }))
    }
}

impl Next for Follow {
    fn is_open(&self) -> bool {
        !matches!(self.state, State::Opening { .. })
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    fn status(&self, now: Instant) -> Option<String> {
        match &self.state {
            _ if self.interrupted => Some("cancelling … (Ctrl+C again leaves at once)".into()),
            State::Opening { .. } => Some("opening the session …".into()),
            State::Sent => None,
            State::Queued { .. } => Some("waiting for the prompts before this one …".into()),
            State::Running { since, .. } => Some(
                self.calls.status(now).unwrap_or_else(|| format!("thinking · {}", output::whole_seconds(now - *since))),
            ),
        }
    }

    fn interrupt(&mut self, request_id: String) -> Vec<Act> {
        self.interrupted = true;
        let session_id = self.session_id;
        match &self.state {
            State::Running { turn_id, .. } => {
                let cancel = TurnCancel { request_id, session_id, turn_id: turn_id.clone() };
                vec![
                    Act::Say("cancelling the turn; Ctrl+C again leaves at once".into()),
                    send(ClientMessage::TurnCancel(cancel)),
                ]
            }
            State::Queued { queue_id, revision } => {
                let (queue_id, revision) = (queue_id.clone(), *revision);
                vec![send(ClientMessage::QueueRemove(QueueRemove { request_id, session_id, queue_id, revision }))]
            }
            State::Opening { .. } | State::Sent => vec![Act::End(End::Interrupted)],
        }
    }

    fn attach_again(&mut self, open: &Opening, request_ids: &mut dyn FnMut() -> String) -> ClientMessage {
        let request_id = request_ids();
        if let State::Opening { request_id: opening } = &mut self.state {
            opening.clone_from(&request_id);
            self.request_id = request_ids();
            self.prompt.request_id.clone_from(&self.request_id);
            return open.message(request_id);
        }
        self.attaching = Some(request_id.clone());
        self.is_unsure = matches!(self.state, State::Sent) && self.turn_id.is_none();
        self.replayed.clear();
        self.request_id = request_ids();
        self.prompt.request_id.clone_from(&self.request_id);
        self.stream.attached_again();
        open.again(request_id, self.stream.last_seq())
    }

    fn event(&mut self, event: ServerEvent, now: Instant) -> Vec<Act> {
        let gap = self.stream.sees(event.seq());
        match event {
            ServerEvent::Turn(event) if self.is_ours(&event) => self.our_turn_at_last(event, gap, now),
            ServerEvent::Turn(event) => {
                self.other_turn(event);
                Vec::new()
            }
            ServerEvent::Session(event) => self.session(event),
            ServerEvent::Reply(reply) => self.reply(reply),
            ServerEvent::Unknown(_) => Vec::new(),
        }
    }
}

fn send(message: ClientMessage) -> Act {
    Act::Send(Box::new(message))
}

#[cfg(test)]
mod tests;
