//! The events of `codex exec --json`.
//!
//! The last `agent_message` is the reply. `item.completed` with an item of type `error` is a
//! warning, and so is a top-level `error` (it also tells of reconnecting): only `turn.failed`
//! fails a turn.

use std::collections::HashSet;

use serde::Deserialize;
use serde::de::IgnoredAny;
use shared::protocol::server::Usage;

use super::{Format, Phase, Said, display};

/// Reads the events of one turn.
#[derive(Default)]
pub(crate) struct Codex {
    open: HashSet<String>,
}

/// Items that may be open at once; a program that opens more is not counted any further.
const MAX_OPEN: usize = 1024;

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Event {
    #[serde(rename = "thread.started")]
    ThreadStarted { thread_id: String },
    #[serde(rename = "turn.started")]
    TurnStarted,
    #[serde(rename = "item.started")]
    ItemStarted { item: Item },
    #[serde(rename = "item.completed")]
    ItemCompleted { item: Item },
    #[serde(rename = "turn.completed")]
    TurnCompleted { usage: Option<Tokens> },
    #[serde(rename = "turn.failed")]
    TurnFailed { error: Option<Failure> },
    #[serde(rename = "error")]
    Error { message: String },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    id: String,
    #[serde(flatten)]
    kind: Kind,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Kind {
    AgentMessage {
        text: String,
    },
    CommandExecution {
        command: String,
        exit_code: Option<i64>,
    },
    FileChange {
        #[serde(default)]
        changes: Vec<Change>,
    },
    WebSearch {
        #[serde(default)]
        query: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Change {
    path: String,
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(rename = "input_tokens")]
    input: Option<u64>,
    #[serde(rename = "cached_input_tokens")]
    cached: Option<u64>,
    #[serde(rename = "output_tokens")]
    output: Option<u64>,
}

#[derive(Deserialize)]
struct Failure {
    message: String,
}

impl Format for Codex {
    fn line(&mut self, line: &str, said: &mut Said) -> bool {
        if !line.starts_with('{') {
            return false;
        }
        match serde_json::from_str(line) {
            Ok(event) => self.event(event, said),
            // An event of an unknown shape is still one.
            Err(_) => return serde_json::from_str::<IgnoredAny>(line).is_ok(),
        }
        true
    }
}

impl Codex {
    fn event(&mut self, event: Event, said: &mut Said) {
        match event {
            Event::ThreadStarted { thread_id } => said.thread = Some(thread_id),
            Event::ItemStarted { item } => self.started(item, said),
            Event::ItemCompleted { item } => self.completed(item, said),
            Event::TurnCompleted { usage } => {
                said.usage = usage.map(|tokens| Usage {
                    input_tokens: tokens.input,
                    output_tokens: tokens.output,
                    cached_tokens: tokens.cached.filter(|&cached| cached > 0),
                });
                // What it recovered from is no error any more.
                said.error = None;
                said.phase = Phase::Ended;
            }
            Event::TurnFailed { error } => {
                if let Some(failure) = error {
                    said.trouble(&failure.message);
                }
                said.failed = true;
                said.phase = Phase::Ended;
            }
            Event::Error { message } => {
                said.progress.push(display::line("warning: ", &message));
                said.trouble(&message);
            }
            Event::TurnStarted => said.phase = Phase::Working,
            Event::Unknown => {}
        }
    }

    fn started(&mut self, item: Item, said: &mut Said) {
        if let Kind::CommandExecution { command, .. } = &item.kind {
            said.progress.push(display::line("$ ", command));
        }
        if self.open.len() < MAX_OPEN {
            self.open.insert(item.id);
        }
        said.phase = Phase::Working;
    }

    fn completed(&mut self, item: Item, said: &mut Said) {
        self.open.remove(&item.id);
        said.phase = Phase::Working;
        match item.kind {
            Kind::AgentMessage { text } => {
                said.answer(&text);
                if self.open.is_empty() {
                    said.phase = Phase::Answered;
                }
            }
            Kind::CommandExecution { command, exit_code: Some(code) } if code != 0 => {
                said.progress.push(display::line(&format!("exit {code}: "), &command));
            }
            Kind::FileChange { changes } => {
                for change in changes {
                    said.progress.push(format!("{} {}", change.kind, display::path(&change.path)));
                }
            }
            Kind::WebSearch { query } if !query.is_empty() => {
                said.progress.push(display::line("search: ", &query));
            }
            Kind::CommandExecution { .. } | Kind::WebSearch { .. } | Kind::Other => {}
        }
    }
}

#[cfg(test)]
mod tests;
