//! The six ways a call ends, and the one object that tells the model.
//!
//! Completed, failed, declined, timeout, cancelled, and process gone, which is a failure that
//! nobody reported. All of it is decided here, from what was heard and why the turn stopped.

use serde::Serialize;
use serde_json::Value;
use shared::process::Exit;
use shared::protocol::server::Usage;

use super::adapters::Adapter;
use super::output::{ERROR_BYTES, Heard, Phase, display};
use super::reading;

/// Why a turn stopped.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cause {
    /// The agent is done: its process exited, or its transport said so.
    Exited(Exit),
    /// Its terminal event came, but its process stayed and was ended.
    Lingered,
    /// It answered, then nothing came for this many seconds and nothing that it started ran.
    Silent(u64),
    /// The time was up, in seconds.
    Deadline(u64),
    /// `scv agents kill`.
    Killed,
    /// The turn of the session was cancelled.
    Cancelled,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// The agent did its turn.
    Completed,
    /// It reported an error, exited with a failure, or was gone before it was done.
    Failed,
    /// Its model refused.
    Declined,
    /// The time was up.
    Timeout,
    /// It was stopped.
    Cancelled,
}

/// What the model gets (tools.md, "Results").
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Outcome {
    pub agent: &'static str,
    pub status: Status,
    pub reply: String,
    pub usage: Option<Usage>,
    /// `None` if a signal ended it, or if it was not waited for.
    pub exit_code: Option<i32>,
    pub stderr_tail: String,
    pub truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
}

/// What a result depends on beside the agent's own words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    /// The agent.
    pub adapter: &'static Adapter,
    /// The agents of this session.
    pub offered: &'a [&'static Adapter],
    /// `tools.output_limit_bytes`
    pub reply_bytes: usize,
}

impl std::fmt::Debug for Adapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Outcome {
    /// Judges a turn. Usage, session and turn are the caller's to add.
    pub(crate) fn judge(context: Context<'_>, heard: &Heard, cause: &Cause) -> Self {
        let said = &heard.said;
        let (status, gone) = status(heard, cause);
        let (stderr_tail, stderr_cut) = heard.stderr_tail();
        let reply = said.reply.as_deref().unwrap_or_default();
        let end = shared::text::floor(reply, context.reply_bytes);
        let mut outcome = Self {
            agent: context.adapter.name,
            status,
            reply: reply[..end].to_owned(),
            usage: None,
            exit_code: match cause {
                Cause::Exited(exit) => exit.code,
                _ => None,
            },
            truncated: end < reply.len() || said.reply_cut || stderr_cut,
            error: error(context.adapter, status, heard, cause, &stderr_tail),
            hint: None,
            note: None,
            fallback: None,
            session: None,
            turn: None,
            stderr_tail,
        };
        outcome.advise(context, cause, gone);
        outcome
    }

    /// The JSON object, its fields sorted.
    pub(crate) fn to_json(&self) -> String {
        // `Value` keeps an object's fields sorted.
        serde_json::to_value(self).map_or_else(|_| String::new(), |value: Value| value.to_string())
    }

    /// Adds a sentence to the note.
    pub(crate) fn remark(&mut self, sentence: &str) {
        self.note = Some(match self.note.take() {
            Some(note) => format!("{note} {sentence}"),
            None => sentence.to_owned(),
        });
    }

    fn advise(&mut self, context: Context<'_>, cause: &Cause, gone: bool) {
        let Context { adapter, offered, .. } = context;
        if self.status == Status::Failed
            && let Some(error) = &self.error
        {
            let lower = error.to_lowercase();
            let signed_out = reading::signed_out(error, adapter.signed_out);
            self.hint = if signed_out {
                Some(format!("{} may not be signed in: run `scv agents login {}`", adapter.product, adapter.name))
            } else {
                adapter.hints.iter().find(|(words, _)| lower.contains(words)).map(|(_, hint)| (*hint).to_owned())
            };
            if gone || signed_out || reading::avoidable(error) {
                self.fallback = fallback(adapter, offered);
            }
        }
        match self.status {
            Status::Declined => self.remark(&declined(adapter, offered)),
            Status::Completed if self.reply.is_empty() => self.remark(&format!(
                "{} ended its turn without an answer; its model may have refused the request. Tell the user.",
                adapter.product
            )),
            _ => {}
        }
        match cause {
            Cause::Silent(seconds) => self.remark(&format!(
                "{} gave this answer, then nothing came for {seconds} s although nothing that it started was running, \
                 and it never reported the end of its turn; it was stopped. The answer may not be its last word.",
                adapter.product
            )),
            Cause::Lingered if !gone => self.remark(&format!(
                "{} reported the end of its turn, but its process did not exit and was stopped.",
                adapter.product
            )),
            _ => {}
        }
    }
}

/// The status, and whether the process was gone before it was done and without a word.
fn status(heard: &Heard, cause: &Cause) -> (Status, bool) {
    let said = &heard.said;
    let reported = if said.failed {
        Status::Failed
    } else if said.refused {
        Status::Declined
    } else {
        Status::Completed
    };
    let unfinished = heard.has_events() && said.phase != Phase::Ended;
    match cause {
        Cause::Cancelled | Cause::Killed => (Status::Cancelled, false),
        // An answer that was complete before the time was up is complete.
        Cause::Deadline(_) if said.phase != Phase::Ended => (Status::Timeout, false),
        Cause::Lingered if unfinished => (Status::Failed, said.error.is_none()),
        Cause::Exited(exit) if reported == Status::Completed && (!exit.success() || unfinished) => {
            (Status::Failed, said.error.is_none())
        }
        Cause::Deadline(_) | Cause::Silent(_) | Cause::Lingered | Cause::Exited(_) => (reported, false),
    }
}

/// What went wrong, as the agent or SCV reports it; never the model's reply.
fn error(adapter: &Adapter, status: Status, heard: &Heard, cause: &Cause, stderr: &str) -> Option<String> {
    let reported = heard.said.error.as_deref();
    match (status, cause) {
        (Status::Timeout, Cause::Deadline(seconds)) => {
            let error = format!("{} did not finish within {seconds} s", adapter.product);
            Some(reported.map_or(error.clone(), |last| format!("{error}; it last reported: {last}")))
        }
        (Status::Failed, _) if reported.is_some() => reported.map(str::to_owned),
        (Status::Failed, Cause::Exited(exit)) => {
            let before = if heard.has_events() { " before it finished its turn" } else { "" };
            let mut error = format!("{} exited with {exit}{before}", adapter.product);
            // A stream without events is the program's closing output, not a model's reply.
            let output = heard.said.reply.as_deref().filter(|_| !heard.has_events()).unwrap_or_default();
            for text in [output, stderr] {
                let text = display::mask(text.trim());
                let tail = text.len().saturating_sub(ERROR_BYTES / 2);
                if !text.is_empty() {
                    error.push_str(": ");
                    error.push_str(&text[text.ceil_char_boundary(tail)..]);
                }
            }
            Some(shared::text::cut(&error, ERROR_BYTES))
        }
        (Status::Failed, Cause::Lingered) if heard.said.phase != Phase::Ended => {
            Some(format!("{} closed its output before it finished its turn, and did not exit", adapter.product))
        }
        (Status::Failed, _) => Some(format!("{} reported a failure without a reason", adapter.product)),
        _ => None,
    }
}

/// Names the other agents of the session.
pub(crate) fn fallback(adapter: &Adapter, offered: &[&'static Adapter]) -> Option<String> {
    let others: Vec<&str> = offered.iter().map(|other| other.name).filter(|&name| name != adapter.name).collect();
    (!others.is_empty()).then(|| {
        format!(
            "This agent could not run: it is missing, signed out, or its provider returned an error. Other agents \
             are available: {}. Call agent again with one of them.",
            others.join(", ")
        )
    })
}

fn declined(adapter: &Adapter, offered: &[&'static Adapter]) -> String {
    let second = offered.iter().find(|other| other.second_opinion && !adapter.second_opinion);
    match second {
        Some(second) => format!(
            "{} declined. Tell the user what it said, then call agent again with agent {} and the same request; a \
             safety or guardrail refusal is not a reason to skip {}.",
            adapter.product, second.name, second.product
        ),
        None => format!(
            "{} declined. Tell the user what it said rather than passing the request to another agent on your own; \
             if the user then asks for a specific agent, use it.",
            adapter.product
        ),
    }
}

#[cfg(test)]
mod tests;
