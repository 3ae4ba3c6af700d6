//! What a session is, as a fold over its journal.
//!
//! A running session and a recovered one apply the same records through [`State::apply`], so what
//! comes back after a kill is what was there.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::protocol::ErrorCode;
use shared::protocol::server::{QueueEntry, SessionBody, SessionEvent, ToolCompleted, TurnBody, TurnEvent, Usage};
use uuid::Uuid;

use super::record::{Prompt, Record};
use crate::provider::Item;

/// Prompt ids that are remembered: a prompt sent again after more others is a new one.
const KNOWN_PROMPTS: usize = 4096;

/// Numbers that one ceiling record covers.
pub(crate) const SEQ_STEP: u64 = 4096;

/// The output that a call gets when nobody knows what it did.
pub(crate) const INTERRUPTED: &str = "interrupted: may or may not have taken effect";

/// A session between two records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The last number that was used.
    pub seq: u64,
    /// Numbers up to here are covered by a ceiling in the journal.
    pub ceiling: u64,
    /// The conversation with the model.
    pub items: Vec<Rc<Item>>,
    /// Prompts that wait.
    pub queue: VecDeque<Queued>,
    /// Whether they stay waiting.
    pub paused: bool,
    /// The turn that runs.
    pub turn: Option<Turn>,
    /// Prompts whose client gave them an id, oldest first.
    pub known: VecDeque<Known>,
    /// Tokens of the whole session.
    pub usage: Usage,
    /// The highest client number in any request id.
    pub last_client: u64,
    /// The last prompt.
    pub last_prompt: Option<String>,
    /// When something last happened, in milliseconds since 1970.
    pub last_active: u64,
    /// Conversations with agents, as their own code wrote them.
    #[serde(default)]
    pub conversations: Value,
}

/// A prompt that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Queued {
    /// The prompt.
    pub prompt: Prompt,
    /// Grows with each change.
    pub revision: u64,
}

impl Queued {
    /// As clients see it.
    pub(crate) fn entry(&self) -> QueueEntry {
        QueueEntry {
            queue_id: self.prompt.queue_id.clone(),
            revision: self.revision,
            prompt: self.prompt.text.clone(),
            submitter: self.prompt.submitter.clone(),
            attachments: self.prompt.attachments.clone(),
        }
    }
}

/// The turn that runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Turn {
    /// The turn.
    pub turn_id: String,
    /// Its prompt.
    pub prompt: Prompt,
    /// Calls of the last response without an output, in order: id and tool.
    pub open_calls: Vec<(String, String)>,
    /// Since when it runs, in milliseconds since 1970.
    pub since: u64,
    /// Whether `turn.started` was told.
    pub told: bool,
    /// Tokens so far.
    pub usage: Usage,
}

/// A prompt with an id of its client's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// The client's id.
    pub prompt_id: Uuid,
    /// Ours.
    pub queue_id: String,
    /// The turn that it became, and how that ended.
    pub outcome: Option<TurnEvent>,
}

impl State {
    /// The state after `records`.
    #[cfg(test)]
    pub(crate) fn fold(records: &[Record]) -> Self {
        let mut state = Self::default();
        for record in records {
            state.apply(record);
        }
        state
    }

    /// Moves on by one record.
    pub(crate) fn apply(&mut self, record: &Record) {
        match record {
            Record::Prompt(prompt) => self.accept(prompt),
            Record::Begin { at, turn_id, queue_id } => self.begin(*at, turn_id, queue_id),
            Record::Turn { at, event } => self.turn_event(*at, event),
            Record::Session { at, event } => self.session_event(*at, event),
            Record::Response { items, usage } => self.response(items, *usage),
            Record::Paused { paused } => self.paused = *paused,
            Record::Conversations { snapshot } => self.conversations = snapshot.clone(),
            Record::Ceiling { seq } => self.ceiling = self.ceiling.max(*seq),
            Record::Snapshot { state } => self.clone_from(state),
            Record::Approval { .. } | Record::Blob { .. } => {}
        }
    }

    /// Where numbers go on after a death: above everything that may have been used.
    pub(crate) fn skip_to_ceiling(&mut self) {
        self.seq = self.seq.max(self.ceiling);
    }

    /// The entry of a waiting prompt, and its place.
    pub(crate) fn queued(&self, queue_id: &str) -> Option<(usize, &Queued)> {
        self.queue.iter().enumerate().find(|(_, queued)| queued.prompt.queue_id == queue_id)
    }

    /// What became of a prompt that its client had sent before.
    pub(crate) fn known(&self, prompt_id: &Uuid) -> Option<&Known> {
        self.known.iter().rev().find(|known| known.prompt_id == *prompt_id)
    }

    fn accept(&mut self, prompt: &Prompt) {
        self.last_active = prompt.at;
        self.last_prompt = Some(headline(&prompt.text));
        self.last_client = self.last_client.max(client_number(&prompt.request_id).unwrap_or(0));
        if let Some(prompt_id) = prompt.prompt_id {
            if self.known.len() >= KNOWN_PROMPTS {
                self.known.pop_front();
            }
            self.known.push_back(Known { prompt_id, queue_id: prompt.queue_id.clone(), outcome: None });
        }
        self.queue.push_back(Queued { prompt: prompt.clone(), revision: 1 });
    }

    fn begin(&mut self, at: u64, turn_id: &str, queue_id: &str) {
        let Some(place) = self.queued(queue_id).map(|(place, _)| place) else { return };
        let Some(Queued { prompt, .. }) = self.queue.remove(place) else { return };
        self.items.push(Rc::new(Item::User { text: prompt_text(&prompt) }));
        self.turn = Some(Turn {
            turn_id: turn_id.to_owned(),
            prompt,
            open_calls: Vec::new(),
            since: at,
            told: false,
            usage: Usage::default(),
        });
    }

    fn response(&mut self, items: &[Item], usage: Usage) {
        self.usage = self.usage.plus(usage);
        if let Some(turn) = &mut self.turn {
            turn.usage = turn.usage.plus(usage);
        }
        for item in items {
            if let (Item::Call { call_id, name, .. }, Some(turn)) = (item, &mut self.turn) {
                turn.open_calls.push((call_id.clone(), name.clone()));
            }
            self.items.push(Rc::new(item.clone()));
        }
    }

    fn turn_event(&mut self, at: u64, event: &TurnEvent) {
        self.seq = self.seq.max(event.seq);
        self.last_active = at;
        match &event.body {
            TurnBody::Started { .. } => {
                if let Some(turn) = &mut self.turn {
                    turn.told = true;
                }
            }
            TurnBody::ToolCompleted(ToolCompleted { call_id, output, .. }) => self.output(call_id, output),
            TurnBody::Completed { .. } => self.end(event, None),
            TurnBody::Cancelled {} => self.end(event, Some("The user cancelled this turn.".to_owned())),
            TurnBody::Failed { code, message, .. } => self.end(event, Some(failure_note(*code, message))),
            TurnBody::AssistantDelta { .. }
            | TurnBody::AssistantCompleted { .. }
            | TurnBody::ToolProposed { .. }
            | TurnBody::ApprovalRequested(_)
            | TurnBody::ToolStarted { .. }
            | TurnBody::ToolProgress { .. }
            | TurnBody::ContextCompacted { .. } => {}
        }
    }

    fn output(&mut self, call_id: &str, output: &str) {
        if let Some(turn) = &mut self.turn
            && let Some(place) = turn.open_calls.iter().position(|(open, _)| open == call_id)
        {
            turn.open_calls.remove(place);
            self.items.push(Rc::new(Item::Output { call_id: call_id.to_owned(), output: output.to_owned() }));
        }
    }

    /// Ends the turn: no call stays without a result, and the model learns why it ended.
    fn end(&mut self, event: &TurnEvent, note: Option<String>) {
        let Some(turn) = self.turn.take() else { return };
        for (call_id, _) in turn.open_calls {
            self.items.push(Rc::new(Item::Output { call_id, output: INTERRUPTED.to_owned() }));
        }
        if let Some(text) = note {
            self.items.push(Rc::new(Item::Note { text }));
        }
        if let Some(known) = self.known.iter_mut().find(|known| known.queue_id == turn.prompt.queue_id) {
            known.outcome = Some(event.clone());
        }
    }

    fn session_event(&mut self, at: u64, event: &SessionEvent) {
        self.seq = self.seq.max(event.seq);
        self.last_active = at;
        match &event.body {
            SessionBody::QueueUpdated { entry } => {
                if let Some(queued) = self.queue.iter_mut().find(|q| q.prompt.queue_id == entry.queue_id) {
                    queued.prompt.text.clone_from(&entry.prompt);
                    queued.revision = entry.revision;
                }
            }
            SessionBody::QueueMoved { entry, position } => {
                if let Some(place) = self.queued(&entry.queue_id).map(|(place, _)| place)
                    && let Some(mut queued) = self.queue.remove(place)
                {
                    queued.revision = entry.revision;
                    self.queue.insert((*position).min(self.queue.len()), queued);
                }
            }
            SessionBody::QueueRemoved { queue_id } => self.queue.retain(|q| q.prompt.queue_id != *queue_id),
            SessionBody::Cleared {} => self.items.clear(),
            // Told for clients; the prompt's own record and `Begin` did the work.
            SessionBody::QueueEnqueued { .. } | SessionBody::QueueDequeued { .. } | SessionBody::Trimmed { .. } => {}
        }
    }
}

/// A prompt in a list.
pub(crate) fn headline(prompt: &str) -> String {
    shared::text::one_line(prompt, 120)
}

/// The number in `client:<n>:<id>`.
pub(crate) fn client_number(request_id: &str) -> Option<u64> {
    request_id.strip_prefix("client:")?.split_once(':')?.0.parse().ok()
}

/// What the model reads of a prompt: its text, then the files that came with it.
fn prompt_text(prompt: &Prompt) -> String {
    let mut text = prompt.text.clone();
    for attachment in &prompt.attachments {
        let name = attachment.name.as_deref().unwrap_or("file");
        let (kind, size, path) = (&attachment.kind, attachment.size, attachment.path.display());
        // Writing to a string cannot fail.
        let _ = write!(text, "\n[attached {kind}: {name}, {size} bytes, at {path}]");
        if let Some(transcript) = &attachment.transcript {
            let _ = write!(text, "\n[its transcript: {transcript}]");
        }
    }
    text
}

fn failure_note(code: ErrorCode, message: &str) -> String {
    match code {
        ErrorCode::SessionCrashed => {
            "The turn was interrupted: the process that ran it died. Nothing was run again.".to_owned()
        }
        _ => format!("The turn failed: {message}"),
    }
}

#[cfg(test)]
mod tests;
