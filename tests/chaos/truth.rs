//! What really happened, as seen from outside of SCV.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One prompt of a user.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    /// The session.
    pub session: String,
    /// Whether the server said that it has it.
    pub acknowledged: bool,
    /// How its turn ended, as often as that was told; each turn once.
    pub ends: BTreeMap<String, String>,
    /// Whether the user took it back, or cleared the session.
    pub withdrawn: bool,
}

/// The ledger of everything.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// By the number in the prompt's text.
    pub prompts: BTreeMap<u64, Prompt>,
    /// What the model was asked: (prompt, step), and how often.
    pub asked: BTreeMap<(u64, usize), usize>,
    /// Calls of which a client was told that they succeeded.
    pub succeeded: BTreeSet<(u64, usize)>,
    /// What must not have happened.
    pub violations: Vec<String>,
    /// The newest steps, for a failure's report.
    pub log: Vec<String>,
    /// From a fault to the answer of a supervisor or session.
    pub recoveries: Vec<Duration>,
    next_prompt: u64,
    started: Option<Instant>,
}

impl Truth {
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
        self.log(format!("VIOLATION {what}"));
        self.state().violations.push(what);
    }

    /// Something was done.
    pub(crate) fn log(&self, what: impl AsRef<str>) {
        let mut state = self.state();
        let started = *state.started.get_or_insert_with(Instant::now);
        state.log.push(format!("{:9.3} {}", started.elapsed().as_secs_f64(), what.as_ref()));
    }

    /// A new prompt; its number.
    pub(crate) fn prompt(&self, session: &str) -> u64 {
        let mut state = self.state();
        state.next_prompt += 1;
        let number = state.next_prompt;
        let prompt =
            Prompt { session: session.to_owned(), acknowledged: false, ends: BTreeMap::new(), withdrawn: false };
        state.prompts.insert(number, prompt);
        number
    }
}
