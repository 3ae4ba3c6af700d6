//! `scv sessions log`: what happened in a session, from its journal. Needs no supervisor and wakes
//! nobody.

use std::io;

use clap::Args;
use serde_json::json;
use shared::protocol::ErrorCode;
use shared::protocol::server::{SessionBody, TurnBody};
use shared::registry::{Entry, Transcript};
use shared::text;

use crate::commands::ids;
use crate::context::Context;
use crate::error::CliError;
use crate::output;

/// Lines of a call's output that are shown.
const OUTPUT_LINES: usize = 5;

/// `scv sessions log`
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// Its id, or a start of it that no other session has
    #[arg(value_name = "ID")]
    session: String,
    /// As JSON, one entry a line: `at` in Unix milliseconds, and the event, or `prompt` and `submitter`
    #[arg(long)]
    json: bool,
}

impl Log {
    /// Prints the transcript.
    pub(super) fn run(&self, context: &Context) -> Result<(), CliError> {
        let sessions = std::fs::read_dir(context.layout.sessions()).into_iter().flatten().flatten();
        let ids: Vec<String> = sessions.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let id = ids::SESSION.find(&self.session, &ids.iter().map(String::as_str).collect::<Vec<_>>())?;
        let id = id.parse().map_err(|_| CliError::failed(format!("{id} in the home is no session")))?;
        let dir = context.layout.session(id);
        let cannot =
            |error: io::Error| CliError::failed(format!("cannot read {}", dir.journal().display())).because(error);
        let transcript = match Transcript::open(&dir) {
            // Nothing has happened in it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(cannot)?,
        };
        for entry in transcript {
            let entry = entry.map_err(cannot)?;
            if self.json {
                output::line(&as_json(&entry).to_string())?;
            } else {
                for line in told(&entry) {
                    output::line(&output::printable(&line))?;
                }
            }
        }
        Ok(())
    }
}

fn as_json(entry: &Entry) -> serde_json::Value {
    let with = |at: &u64, event: serde_json::Result<serde_json::Value>| {
        let mut event = event.unwrap_or_default();
        event["at"] = json!(at);
        event
    };
    match entry {
        Entry::Prompt { at, submitter, text } => json!({"at": at, "prompt": text, "submitter": submitter}),
        Entry::Turn { at, event } => with(at, serde_json::to_value(event)),
        Entry::Session { at, event } => with(at, serde_json::to_value(event)),
        Entry::Other => json!(null),
    }
}

/// The entry in lines.
fn told(entry: &Entry) -> Vec<String> {
    match entry {
        Entry::Prompt { at, submitter, text } => indented(&format!("{}  {submitter}: ", time(*at)), text),
        Entry::Turn { at, event } => turn(*at, &event.body),
        Entry::Session { at, event } => match &event.body {
            SessionBody::Cleared {} => vec![format!("{}  the conversation was cleared", time(*at))],
            SessionBody::QueueRemoved { .. } => vec![format!("{}  a waiting prompt was removed", time(*at))],
            SessionBody::Trimmed { removed_messages, .. } => {
                vec![format!("{}  the {removed_messages} oldest messages left the history", time(*at))]
            }
            _ => Vec::new(),
        },
        Entry::Other => Vec::new(),
    }
}

fn turn(at: u64, body: &TurnBody) -> Vec<String> {
    let line = |what: String| vec![format!("{}  {what}", time(at))];
    match body {
        TurnBody::AssistantCompleted { content } if content.is_empty() => Vec::new(),
        TurnBody::AssistantCompleted { content } => indented(&format!("{}  ", time(at)), content),
        TurnBody::ToolProposed { name, arguments, .. } => {
            line(format!("> {name} {}", text::one_line(&arguments.to_string(), 200)))
        }
        TurnBody::ToolCompleted(call) => {
            let took = call.duration_ms.map(std::time::Duration::from_millis).map(output::duration);
            let took = took.map(|took| format!(" after {took}")).unwrap_or_default();
            let how = if call.success { "done" } else { "failed" };
            let mut lines = line(format!("< {} {how}{took}", call.name));
            let shown = call.output.lines().filter(|line| !line.trim().is_empty());
            lines.extend(shown.take(OUTPUT_LINES).map(|line| format!("    | {}", text::one_line(line, 200))));
            lines
        }
        TurnBody::ContextCompacted { before_tokens, after_tokens, .. } => {
            line(format!("older messages were summarised: {before_tokens} → {after_tokens} tokens"))
        }
        TurnBody::Completed { steps, .. } => line(format!("turn completed ({steps} steps)")),
        TurnBody::Cancelled {} => line("turn cancelled".into()),
        TurnBody::Failed { code: ErrorCode::SessionCrashed, message, .. } => {
            line(format!("turn interrupted: {message}"))
        }
        TurnBody::Failed { message, .. } => line(format!("turn failed: {message}")),
        TurnBody::Started { .. }
        | TurnBody::AssistantDelta { .. }
        | TurnBody::ApprovalRequested(_)
        | TurnBody::ToolStarted { .. }
        | TurnBody::ToolProgress { .. } => Vec::new(),
    }
}

/// The first line behind `head`, the others below it.
fn indented(head: &str, text: &str) -> Vec<String> {
    let below = " ".repeat(head.chars().count().min(21));
    let lines = text.lines().enumerate();
    lines.map(|(at, line)| format!("{}{line}", if at == 0 { head } else { &below })).collect()
}

/// To the second, in UTC.
fn time(at: u64) -> String {
    let at = i64::try_from(at).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    at.map_or_else(|| " ".repeat(19), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: serde_json::Value) -> Entry {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_conversation_reads_from_top_to_bottom() {
        let common = json!({"request_id": "r", "session_id": "01890a5d-ac96-774b-bcce-b302099a8057",
            "turn_id": "t", "seq": 1});
        let turn = |mut event: serde_json::Value| {
            event.as_object_mut().unwrap().extend(common.as_object().unwrap().clone());
            entry(json!({"record": "turn", "at": 1_796_090_020_000_u64, "event": event}))
        };
        let entries = [
            entry(json!({"record": "prompt", "at": 1_796_090_019_000_u64, "submitter": "ann", "text": "one\ntwo"})),
            turn(json!({"type": "tool.proposed", "call_id": "c", "name": "bash", "arguments": {"command": "ls"}})),
            turn(json!({"type": "tool.completed", "call_id": "c", "name": "bash", "success": true, "output": "a\nb",
                "truncated": false, "duration_ms": 1500})),
            turn(json!({"type": "assistant.completed", "content": "Two files."})),
            turn(json!({"type": "turn.failed", "code": "session_crashed", "message": "the worker died"})),
        ];
        let lines: Vec<String> = entries.iter().flat_map(told).collect();
        assert_eq!(
            lines,
            [
                "2026-12-01 01:53:39  ann: one",
                "                     two",
                "2026-12-01 01:53:40  > bash {\"command\":\"ls\"}",
                "2026-12-01 01:53:40  < bash done after 1.5 s",
                "    | a",
                "    | b",
                "2026-12-01 01:53:40  Two files.",
                "2026-12-01 01:53:40  turn interrupted: the worker died",
            ]
        );
    }
}
