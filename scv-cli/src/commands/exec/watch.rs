//! Follows a session without a prompt of one's own: every turn, whoever started it. Pure: events in,
//! acts out.

use shared::protocol::ServerEvent;
use shared::protocol::server::{Reply, SessionBody, SessionEvent, TurnBody, TurnEvent};
use tokio::time::Instant;

use super::ask::Question;
use super::end::End;
use super::follow::answer::Stream;
use super::follow::calls::Calls;
use super::follow::{Act, Next};
use super::open::Opening;
use crate::output;

/// What we know of the session.
#[derive(Debug)]
pub(super) struct Watch {
    stream: Stream,
    calls: Calls,
    /// The turn that runs, and since when we know.
    running: Option<(String, Instant)>,
    /// The request that attaches.
    attaching: String,
    /// Events up to this one are of the past.
    past: u64,
    /// What the newest turn of the past said: shown when the present begins.
    newest: Vec<Act>,
    is_open: bool,
    interrupted: bool,
}

impl Watch {
    /// A session that the request `attaching` is about to attach.
    pub(super) fn new(attaching: String) -> Self {
        Self {
            stream: Stream::default(),
            calls: Calls::default(),
            running: None,
            attaching,
            past: 0,
            newest: Vec::new(),
            is_open: false,
            interrupted: false,
        }
    }

    /// The request that attaches.
    pub(super) fn request_id(&self) -> &str {
        &self.attaching
    }

    fn turn(&mut self, event: TurnEvent, gap: bool, now: Instant) -> Vec<Act> {
        let TurnEvent { body, session_id, turn_id, .. } = event;
        match body {
            TurnBody::Started { .. } => {
                self.running = Some((turn_id, now));
                vec![Act::Say("a turn started".into())]
            }
            TurnBody::AssistantDelta { content } => self.stream.delta(content, gap),
            TurnBody::AssistantCompleted { content } => self.stream.completed(&content),
            TurnBody::ToolProposed { call_id, name, arguments } => {
                self.calls.proposed(call_id, &name, &arguments);
                Vec::new()
            }
            TurnBody::ApprovalRequested(request) => vec![Act::Ask(Box::new(Question { session_id, request }))],
            TurnBody::ToolStarted { call_id, name, limit_ms, .. } => {
                vec![self.calls.started(&call_id, &name, limit_ms, now)]
            }
            TurnBody::ToolProgress { call_id, text } => self.calls.progress(&call_id, &text),
            TurnBody::ToolCompleted(completed) => vec![self.calls.completed(&completed, now)],
            TurnBody::ContextCompacted { before_tokens, after_tokens, .. } => {
                vec![Act::Say(format!("older messages were summarised: {before_tokens} → {after_tokens} tokens"))]
            }
            TurnBody::Completed { .. } => self.ended("the turn was completed".into()),
            TurnBody::Cancelled {} => self.ended("the turn was cancelled".into()),
            TurnBody::Failed { message, .. } => self.ended(format!("the turn failed: {message}")),
        }
    }

    fn ended(&mut self, how: String) -> Vec<Act> {
        self.running = None;
        self.calls = Calls::default();
        vec![Act::EndLine, Act::Say(how)]
    }

    fn session(event: SessionEvent) -> Vec<Act> {
        match event.body {
            SessionBody::QueueEnqueued { entry, .. } => {
                vec![Act::Say(format!("{} asks next: {}", entry.submitter, shared::text::one_line(&entry.prompt, 120)))]
            }
            SessionBody::Cleared {} => vec![Act::Say("the conversation was cleared".into())],
            _ => Vec::new(),
        }
    }

    fn reply(&mut self, reply: Reply) -> Vec<Act> {
        match reply {
            Reply::SessionAttached(attached) => {
                self.is_open = true;
                self.past = attached.to_seq;
                attached.note.into_iter().map(Act::Say).collect()
            }
            // It comes after the replay.
            Reply::QueueSnapshot { entries, paused, .. } => {
                let mut acts = std::mem::take(&mut self.newest);
                if paused && !entries.is_empty() {
                    acts.push(Act::Say(format!("{} prompts wait; the queue is paused", entries.len())));
                }
                acts
            }
            Reply::TurnNotice { text, .. } => vec![Act::Say(text)],
            Reply::ApprovalResolved { approval_id, approved, by, .. } => {
                let how = if approved { "approved" } else { "denied" };
                vec![Act::Settled(approval_id), Act::Say(format!("{how} by {by}"))]
            }
            Reply::SessionClosed { .. } => vec![Act::End(End::Closed)],
            Reply::Error(error) if error.fatal || error.request_id.as_ref() == Some(&self.attaching) => {
                vec![Act::End(End::Refused(error))]
            }
            _ => Vec::new(),
        }
    }
}

impl Next for Watch {
    fn is_open(&self) -> bool {
        self.is_open
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    fn status(&self, now: Instant) -> Option<String> {
        let (_, since) = self.running.as_ref()?;
        Some(self.calls.status(now).unwrap_or_else(|| format!("thinking · {}", output::whole_seconds(now - *since))))
    }

    /// Ctrl+C leaves the session as it is.
    fn interrupt(&mut self, _request_id: String) -> Vec<Act> {
        self.interrupted = true;
        vec![Act::End(End::Detached)]
    }

    fn attach_again(
        &mut self,
        open: &Opening,
        request_ids: &mut dyn FnMut() -> String,
    ) -> shared::protocol::ClientMessage {
        self.attaching = request_ids();
        self.stream.attached_again();
        open.again(self.attaching.clone(), self.stream.last_seq())
    }

    fn event(&mut self, event: ServerEvent, now: Instant) -> Vec<Act> {
        let seq = event.seq();
        let gap = self.stream.sees(seq);
        let acts = match event {
            ServerEvent::Turn(event) => {
                let starts = matches!(event.body, TurnBody::Started { .. });
                if starts && seq.is_some_and(|seq| seq <= self.past) {
                    self.newest.clear();
                }
                self.turn(event, gap, now)
            }
            ServerEvent::Session(event) => Self::session(event),
            ServerEvent::Reply(reply) => return self.reply(reply),
            ServerEvent::Unknown(_) => Vec::new(),
        };
        if seq.is_some_and(|seq| seq <= self.past) {
            // Questions of the past are asked again if they are still open.
            self.newest.extend(acts.into_iter().filter(|act| !matches!(act, Act::Ask(_))));
            return Vec::new();
        }
        acts
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    fn tell(watch: &mut Watch, mut event: serde_json::Value) -> Vec<Act> {
        if event["seq"].is_number() && event["turn_id"].is_null() {
            event["turn_id"] = json!("t");
        }
        for (name, value) in [("session_id", json!(ID)), ("request_id", json!("client:1:r"))] {
            event.as_object_mut().unwrap().entry(name).or_insert(value);
        }
        watch.event(serde_json::from_value(event).unwrap(), Instant::now())
    }

    #[test]
    fn of_the_past_only_the_newest_turn_is_shown_and_then_what_happens() {
        let mut watch = Watch::new("open".into());
        tell(
            &mut watch,
            json!({"type": "session.attached", "request_id": "open", "state": "working", "from_seq": 1, "to_seq": 6,
                "cwd": "/w", "model": "m"}),
        );
        for (seq, text) in [(1, "old"), (4, "new")] {
            tell(&mut watch, json!({"type": "turn.started", "seq": seq}));
            assert_eq!(tell(&mut watch, json!({"type": "assistant.completed", "content": text, "seq": seq + 1})), []);
        }
        let acts = tell(&mut watch, json!({"type": "queue.snapshot", "entries": [], "paused": false}));
        assert_eq!(acts, [Act::Say("a turn started".into()), Act::Answer("new".into()), Act::EndLine],);
        let acts = tell(&mut watch, json!({"type": "turn.completed", "steps": 1, "usage": {}, "seq": 7}));
        assert_eq!(acts, [Act::EndLine, Act::Say("the turn was completed".into())]);
        assert_eq!(watch.interrupt("r".into()), [Act::End(End::Detached)]);
    }
}
