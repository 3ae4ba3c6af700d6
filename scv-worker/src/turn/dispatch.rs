//! One call: prepare, decide, run, tell.

use std::time::Duration;

use serde_json::Value;
use shared::clock;
use shared::protocol::limits;
use shared::protocol::server::{ToolCompleted, TurnBody};
use shared::text;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::sink::{Question, Sink};
use super::{Call, Stop, Turn};
use crate::approvals::{self, Answer, Verdict};
use crate::tools::{CallContext, Output, Prepared, Progress, ToolError};

/// Lines that wait for the next progress event.
const WAITING_LINES: usize = 64;

/// Runs `call` and gives what the model gets of it.
pub(super) async fn run(call: &Call, turn: &Turn, sink: &Sink) -> Result<String, Stop> {
    let started = Instant::now();
    let result = attempt(call, turn, sink).await?;
    let mut completed = completed(call, result, started.elapsed());
    completed.output = turn.mask.apply(&completed.output).into_owned();
    let output = completed.output.clone();
    sink.tell(TurnBody::ToolCompleted(completed)).await?;
    Ok(output)
}

async fn attempt(call: &Call, turn: &Turn, sink: &Sink) -> Result<Result<Output, ToolError>, Stop> {
    let prepared = match prepare(call, turn) {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Err(error)),
    };
    if let Err(denied) = approve(call, turn, sink, &prepared).await? {
        return Ok(Err(denied));
    }
    if turn.cancel.is_cancelled() {
        return Ok(Err(ToolError::Cancelled("cancelled before it started".to_owned())));
    }
    sink.tell_durably(TurnBody::ToolStarted {
        call_id: call.call_id.clone(),
        name: call.name.clone(),
        started_unix_ms: Some(clock::unix_ms()),
        limit_ms: prepared.limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
    })
    .await?;
    execute(call, turn, sink, prepared).await
}

fn prepare<'a>(call: &Call, turn: &'a Turn) -> Result<Prepared<'a>, ToolError> {
    let tool = turn.tools.find(&call.name)?;
    let arguments: Value = if call.arguments.trim().is_empty() {
        Value::Object(serde_json::Map::new())
    } else {
        serde_json::from_str(&call.arguments)
            .map_err(|error| ToolError::Invalid(format!("the arguments are not one JSON object: {error}")))?
    };
    tool.prepare(arguments)
}

async fn approve(
    call: &Call,
    turn: &Turn,
    sink: &Sink,
    prepared: &Prepared<'_>,
) -> Result<Result<(), ToolError>, Stop> {
    match approvals::decide(turn.policy, prepared.risk) {
        Verdict::Allow => Ok(Ok(())),
        Verdict::Deny(reason) => Ok(Err(ToolError::Denied(reason))),
        Verdict::Ask => {
            let question = Question {
                call_id: call.call_id.clone(),
                name: call.name.clone(),
                risk: prepared.risk,
                summary: turn.mask.apply(&prepared.summary).into_owned(),
            };
            tokio::select! {
                biased;
                () = turn.cancel.cancelled() => Ok(Err(ToolError::Cancelled("cancelled while it waited for approval".to_owned()))),
                answer = sink.ask(question) => Ok(match answer? {
                    Answer::Approved => Ok(()),
                    Answer::Denied(reason) => Err(ToolError::Denied(reason)),
                }),
            }
        }
    }
}

/// Runs the call; its lines become at most one progress event in half a second.
async fn execute(
    call: &Call,
    turn: &Turn,
    sink: &Sink,
    prepared: Prepared<'_>,
) -> Result<Result<Output, ToolError>, Stop> {
    let (lines_in, mut lines) = mpsc::channel(WAITING_LINES);
    let context = CallContext { cancel: turn.cancel.clone(), progress: Progress::new(lines_in) };
    let mut run = (prepared.run)(context);
    let mut pending = Pending::default();
    let mut ticks = interval_at(Instant::now() + limits::PROGRESS_EVERY, limits::PROGRESS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            // What is pending when the call is done is dropped: the result follows at once.
            result = &mut run => return Ok(result),
            Some(line) = lines.recv() => {
                let line = turn.mask.apply(&line);
                pending.add(&text::one_line(&line, limits::PROGRESS_LINE_BYTES));
            }
            // No tick without a line: a silent call costs nothing.
            _ = ticks.tick(), if pending.has_lines() => {
                let text = pending.take();
                sink.show(TurnBody::ToolProgress { call_id: call.call_id.clone(), text }).await?;
            }
        }
    }
}

/// Lines since the last progress event, newest kept, at most [`limits::PROGRESS_BYTES`].
#[derive(Debug, Default)]
struct Pending(String);

impl Pending {
    fn add(&mut self, line: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0.push_str(line);
        if self.0.len() > limits::PROGRESS_BYTES {
            let over = self.0.len() - limits::PROGRESS_BYTES;
            // Whole lines go, so that what is left reads well.
            let from = self.0[text::floor(&self.0, over)..]
                .find('\n')
                .map_or(over, |end| text::floor(&self.0, over) + end + 1);
            self.0.drain(..self.0.ceil_char_boundary(from));
        }
    }

    fn has_lines(&self) -> bool {
        !self.0.is_empty()
    }

    fn take(&mut self) -> String {
        std::mem::take(&mut self.0)
    }
}

fn completed(call: &Call, result: Result<Output, ToolError>, took: Duration) -> ToolCompleted {
    let (output, success, truncated, error) = match result {
        Ok(output) => {
            let error = (!output.success).then_some(shared::protocol::server::ToolErrorKind::Failed);
            (output.text, output.success, output.truncated, error)
        }
        Err(error) => (error.to_string(), false, false, Some(error.kind())),
    };
    ToolCompleted {
        call_id: call.call_id.clone(),
        name: call.name.clone(),
        success,
        output,
        truncated,
        error,
        jobs: Vec::new(),
        duration_ms: Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_keeps_the_newest_whole_lines_within_its_limit() {
        let mut pending = Pending::default();
        for n in 0..40 {
            pending.add(&format!("line {n} {}", "é".repeat(20)));
        }
        let text = pending.take();
        assert!(text.len() <= limits::PROGRESS_BYTES);
        assert!(text.starts_with("line ") && text.lines().last().unwrap().starts_with("line 39 "), "{text}");
        assert!(!pending.has_lines());
    }
}
