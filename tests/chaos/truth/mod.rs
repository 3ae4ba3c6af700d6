//! What really happened, as seen from outside of SCV. Every actor writes here; the checks compare.

mod follow;
mod log;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

pub(crate) use follow::{Follow, Heard};
use log::Log;

/// One call of a turn: the number of its prompt, and which step of it.
pub(crate) type Call = (u64, usize);

/// One prompt of a user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prompt {
    /// The session; empty for one that a command made.
    pub session: String,
    /// How its turn ended, by the turn: more than one is one too many.
    pub ends: BTreeMap<String, String>,
    /// Whether a user asked for it to be taken back.
    pub withdrawing: bool,
    /// Whether it was taken back.
    pub withdrawn: bool,
    /// What the file that came with it says.
    pub attached: Option<String>,
    /// How many calls the model was told to make when it was asked last.
    pub calls: usize,
}

impl Prompt {
    /// Whether nothing more is to come of it.
    pub(crate) fn is_over(&self) -> bool {
        self.withdrawn || !self.ends.is_empty()
    }
}

/// The ledger of everything.
pub(crate) struct Truth {
    state: Mutex<State>,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// By the number in the prompt's text; those that were looked at are gone.
    pub prompts: BTreeMap<u64, Prompt>,
    /// What the model was asked, and how often.
    pub asked: BTreeMap<Call, usize>,
    /// Calls of which a client was told that they succeeded.
    pub succeeded: BTreeSet<Call>,
    /// Sessions that a user works in now.
    pub sessions: BTreeSet<String>,
    /// Sessions that were removed.
    pub removed: BTreeSet<String>,
    /// Whether the home's disk was full since the last look at everything.
    pub disk_was_full: bool,
    /// What must not have happened.
    pub violations: Vec<String>,
    /// From the loss of a session to its answer.
    pub recoveries: Vec<Duration>,
    /// How many of what there were.
    pub counts: BTreeMap<&'static str, u64>,
    /// By session and number: what every client has to be told alike.
    told: HashMap<(String, u64), u64>,
    next_prompt: u64,
}

impl Truth {
    /// Nothing has happened; the log of steps goes to `dir`.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { state: Mutex::default(), log: Mutex::new(Log::new(dir)) }
    }

    /// The state, locked.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing went wrong.
    pub(crate) fn is_clean(&self) -> bool {
        self.state().violations.is_empty()
    }

    /// Something went wrong.
    pub(crate) fn violation(&self, what: impl Into<String>) {
        let what = what.into();
        self.log("VIOLATION", &json!({"what": what}));
        self.state().violations.push(what);
    }

    /// Something was done, by `who`.
    pub(crate) fn log(&self, who: &str, what: &Value) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).write(who, what);
    }

    /// The log's folder, with all of it written.
    pub(crate) fn written(&self) -> PathBuf {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }

    /// One more of `what`.
    pub(crate) fn count(&self, what: &'static str) {
        *self.state().counts.entry(what).or_default() += 1;
    }

    /// A new prompt; its number.
    pub(crate) fn prompt(&self, session: &str, attached: Option<String>) -> u64 {
        let mut state = self.state();
        state.next_prompt += 1;
        let number = state.next_prompt;
        *state.counts.entry("prompts").or_default() += 1;
        state.prompts.insert(number, Prompt { session: session.to_owned(), attached, ..Prompt::default() });
        number
    }

    /// The model was asked for a step of a prompt that makes `calls` calls.
    pub(crate) fn asked(&self, (number, step): Call, calls: usize) {
        let wrong = {
            let mut state = self.state();
            *state.counts.entry("requests to the model").or_default() += 1;
            let asked = state.asked.entry((number, step)).or_default();
            *asked += 1;
            let again = *asked > 1;
            match state.prompts.get_mut(&number) {
                Some(prompt) if !again && !prompt.withdrawn => {
                    prompt.calls = calls;
                    None
                }
                Some(_) => Some(format!("the model was asked for step {step} of prompt {number} again")),
                None => Some(format!("the model was asked for prompt {number}, which was over long ago")),
            }
        };
        if let Some(wrong) = wrong {
            self.violation(wrong);
        }
    }

    /// A prompt's turn ended, as somebody was told.
    pub(crate) fn ended(&self, number: u64, turn: &str, how: &str) {
        let mut state = self.state();
        let Some(prompt) = state.prompts.get_mut(&number) else { return };
        let first = prompt.ends.is_empty();
        let before = prompt.ends.insert(turn.to_owned(), how.to_owned());
        // A full disk holds no end: it is told, and a worker that is killed before there is room
        // does not know it (docs/reliability.md).
        let unkept = state.disk_was_full && how == "turn.failed session_crashed";
        let wrong = before.filter(|before| before != how && !unkept);
        let wrong = wrong.map(|before| format!("turn {turn} ended twice: {before}, then {how}"));
        if first {
            let kind = if how.starts_with("turn.failed") { "turns that failed" } else { "turns" };
            *state.counts.entry(kind).or_default() += 1;
        }
        drop(state);
        if let Some(wrong) = wrong {
            self.violation(wrong);
        }
    }

    /// A call succeeded, as somebody was told; a replay tells it again, also when it was looked at.
    pub(crate) fn succeeded(&self, call: Call, leaves_a_mark: bool) {
        let mut state = self.state();
        if leaves_a_mark && state.prompts.contains_key(&call.0) {
            state.succeeded.insert(call);
        }
    }

    /// A prompt was taken back.
    pub(crate) fn withdrawn(&self, number: u64) {
        let mut state = self.state();
        let Some(prompt) = state.prompts.get_mut(&number) else { return };
        if !std::mem::replace(&mut prompt.withdrawn, true) {
            *state.counts.entry("prompts taken back").or_default() += 1;
        }
    }

    /// A client was told `event` as number `seq`: every client is told the same.
    pub(crate) fn told(&self, session: &str, seq: u64, event: &Value) {
        // Those are not kept, so a text so far may take the number of what came last.
        if matches!(event["type"].as_str(), Some("assistant.delta" | "tool.progress")) {
            return;
        }
        let mut hash = DefaultHasher::new();
        for field in ["type", "turn_id", "call_id", "queue_id", "approval_id", "content", "output", "code"] {
            event[field].to_string().hash(&mut hash);
        }
        let hash = hash.finish();
        let before = self.state().told.insert((session.to_owned(), seq), hash);
        if before.is_some_and(|before| before != hash) {
            self.violation(format!("number {seq} of session {session} was used for two events, one is {event}"));
        }
    }

    /// Forgets what a session that is gone for good said.
    pub(crate) fn session_removed(&self, session: &str) {
        let mut state = self.state();
        state.sessions.remove(session);
        state.removed.insert(session.to_owned());
        state.told.retain(|(of, _), _| of != session);
    }
}
