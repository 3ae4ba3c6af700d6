//! The conversations of a session: which handle is whose, what runs, what is remembered.
//!
//! The model knows handles such as `codex-2`; the programs' own ids stay here. An id that a
//! program has not confirmed is never stored.

mod markers;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shared::clock::unix_ms;
use shared::protocol::server::Usage;
use tokio::sync::watch;

pub(crate) use markers::Markers;

/// Ids of programs go into arguments and file names.
const MAX_THREAD_BYTES: usize = 128;

/// A conversation that can go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Conversation {
    /// What the model calls it.
    pub handle: String,
    /// Whose it is.
    pub agent: String,
    /// Where it works.
    pub cwd: PathBuf,
    /// The program's own id.
    pub thread: String,
    /// Turns so far.
    pub turns: u32,
    /// Tokens of all turns, as a program with cumulative usage last reported them.
    pub total: Usage,
    /// When its last turn began or ended.
    pub used_unix_ms: u64,
}

/// What survives the process: every conversation that was confirmed, and the numbers given out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// The next number of each agent: no handle is used twice.
    pub next: BTreeMap<String, u32>,
    /// Oldest handle first.
    pub conversations: Vec<Conversation>,
}

/// Why a conversation cannot take a turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConversationError {
    /// No such handle.
    #[error("no conversation {handle:?} in this session{}; omit session to start a new one", listed(.known))]
    Unknown {
        /// What was asked for.
        handle: String,
        /// What there is.
        known: Vec<String>,
    },
    /// One turn at a time.
    #[error("session busy: a turn of conversation {0} is running; wait for its result, or omit session")]
    Busy(String),
    /// Every remembered conversation runs.
    #[error("{0} conversations are running, which is the limit (agent.max_conversations); wait for one to end")]
    AllBusy(usize),
}

fn listed(handles: &[String]) -> String {
    if handles.is_empty() { String::new() } else { format!(" (it has {})", handles.join(", ")) }
}

/// Limits of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// `agent.max_conversations`
    pub conversations: usize,
    /// `agent.conversation_idle_seconds`
    pub idle: Duration,
}

struct Entry {
    conversation: Conversation,
    confirmed: bool,
    busy: bool,
}

struct State {
    next: BTreeMap<String, u32>,
    entries: Vec<Entry>,
}

struct Shared {
    limits: Limits,
    markers: Markers,
    state: RefCell<State>,
    changes: watch::Sender<Snapshot>,
}

/// The conversations of one session.
#[derive(Clone)]
pub(crate) struct Conversations(Rc<Shared>);

impl Conversations {
    /// Goes on with what `snapshot` remembers; its markers name this process from now on.
    pub(crate) fn new(limits: Limits, markers: Markers, snapshot: Snapshot) -> Self {
        let entries = snapshot
            .conversations
            .iter()
            .map(|conversation| Entry { conversation: conversation.clone(), confirmed: true, busy: false })
            .collect();
        for conversation in &snapshot.conversations {
            markers.write(conversation);
        }
        let state = RefCell::new(State { next: snapshot.next.clone(), entries });
        Self(Rc::new(Shared { limits, markers, state, changes: watch::Sender::new(snapshot) }))
    }

    /// What to keep, now and whenever it changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Snapshot> {
        self.0.changes.subscribe()
    }

    /// The conversation called `handle`, whether or not it is busy.
    pub(crate) fn find(&self, handle: &str) -> Result<Conversation, ConversationError> {
        self.0.forget_expired(unix_ms());
        self.0.state.borrow().find(handle).map(|entry| entry.conversation.clone())
    }

    /// Starts a turn of the conversation called `handle`.
    pub(crate) fn resume(&self, handle: &str) -> Result<Turn, ConversationError> {
        self.0.forget_expired(unix_ms());
        let mut state = self.0.state.borrow_mut();
        let entry = state.find_mut(handle)?;
        if entry.busy {
            return Err(ConversationError::Busy(handle.to_owned()));
        }
        entry.busy = true;
        entry.conversation.turns += 1;
        entry.conversation.used_unix_ms = unix_ms();
        let conversation = entry.conversation.clone();
        drop(state);
        self.0.changed();
        Ok(Turn { shared: Rc::clone(&self.0), conversation, resumed: true })
    }

    /// Starts the first turn of a conversation of `agent` in `cwd`.
    pub(crate) fn begin(&self, agent: &str, cwd: &Path) -> Result<Turn, ConversationError> {
        self.0.forget_expired(unix_ms());
        let mut state = self.0.state.borrow_mut();
        if state.entries.iter().filter(|entry| entry.busy).count() >= self.0.limits.conversations {
            return Err(ConversationError::AllBusy(self.0.limits.conversations));
        }
        let number = state.next.entry(agent.to_owned()).or_insert(1);
        let conversation = Conversation {
            handle: format!("{agent}-{number}"),
            agent: agent.to_owned(),
            cwd: cwd.to_owned(),
            thread: String::new(),
            turns: 1,
            total: Usage::default(),
            used_unix_ms: unix_ms(),
        };
        *number += 1;
        state.entries.push(Entry { conversation: conversation.clone(), confirmed: false, busy: true });
        drop(state);
        self.0.changed();
        Ok(Turn { shared: Rc::clone(&self.0), conversation, resumed: false })
    }

    /// The session is closed: nothing is remembered, no marker stays.
    pub(crate) fn close(&self) {
        for entry in self.0.state.borrow_mut().entries.drain(..) {
            self.0.forget(&entry);
        }
        self.0.changed();
    }
}

impl State {
    fn find(&self, handle: &str) -> Result<&Entry, ConversationError> {
        let found = self.entries.iter().find(|entry| entry.confirmed && entry.conversation.handle == handle);
        found.ok_or_else(|| self.unknown(handle))
    }

    fn find_mut(&mut self, handle: &str) -> Result<&mut Entry, ConversationError> {
        let at = self.entries.iter().position(|entry| entry.confirmed && entry.conversation.handle == handle);
        match at {
            Some(at) => Ok(&mut self.entries[at]),
            None => Err(self.unknown(handle)),
        }
    }

    fn unknown(&self, handle: &str) -> ConversationError {
        let confirmed = self.entries.iter().filter(|entry| entry.confirmed);
        ConversationError::Unknown {
            handle: shared::text::one_line(handle, 64),
            known: confirmed.map(|entry| entry.conversation.handle.clone()).collect(),
        }
    }
}

impl Shared {
    fn changed(&self) {
        let state = self.state.borrow();
        let confirmed = state.entries.iter().filter(|entry| entry.confirmed);
        let snapshot = Snapshot {
            next: state.next.clone(),
            conversations: confirmed.map(|entry| entry.conversation.clone()).collect(),
        };
        self.changes.send_if_modified(|kept| {
            let modified = *kept != snapshot;
            *kept = snapshot;
            modified
        });
    }

    fn forget(&self, entry: &Entry) {
        if entry.confirmed {
            self.markers.remove(&entry.conversation);
        }
    }

    /// Forgets what was left unused for too long.
    fn forget_expired(&self, now_unix_ms: u64) {
        let idle = u64::try_from(self.limits.idle.as_millis()).unwrap_or(u64::MAX);
        let expired =
            |entry: &mut Entry| !entry.busy && now_unix_ms.saturating_sub(entry.conversation.used_unix_ms) > idle;
        let gone: Vec<Entry> = self.state.borrow_mut().entries.extract_if(.., expired).collect();
        for entry in &gone {
            self.forget(entry);
        }
        if !gone.is_empty() {
            self.changed();
        }
    }

    /// Makes room for one that was just confirmed: the least recently used idle ones go.
    fn forget_oldest(&self) {
        let mut state = self.state.borrow_mut();
        while state.entries.iter().filter(|entry| entry.confirmed).count() > self.limits.conversations {
            let idle = state.entries.iter().enumerate().filter(|(_, entry)| entry.confirmed && !entry.busy);
            let Some((at, _)) = idle.min_by_key(|(_, entry)| entry.conversation.used_unix_ms) else { return };
            let entry = state.entries.remove(at);
            self.forget(&entry);
        }
    }
}

/// A running turn of a conversation. When it is dropped the conversation is idle, or forgotten
/// if the program never confirmed it.
pub(crate) struct Turn {
    shared: Rc<Shared>,
    conversation: Conversation,
    resumed: bool,
}

impl Turn {
    /// What the model calls the conversation.
    pub(crate) fn handle(&self) -> &str {
        &self.conversation.handle
    }

    /// Where the conversation works.
    pub(crate) fn cwd(&self) -> &Path {
        &self.conversation.cwd
    }

    /// Counted from 1.
    pub(crate) fn number(&self) -> u32 {
        self.conversation.turns
    }

    /// The program's id of a conversation that goes on.
    pub(crate) fn resumes(&self) -> Option<&str> {
        self.resumed.then_some(self.conversation.thread.as_str())
    }

    /// Whether the conversation is remembered.
    pub(crate) fn is_confirmed(&self) -> bool {
        !self.conversation.thread.is_empty()
    }

    /// The program says that the conversation is `thread`. Ids that are no ids are ignored.
    pub(crate) fn confirm(&mut self, thread: &str) {
        if thread == self.conversation.thread || !is_id(thread) {
            return;
        }
        let before = self.conversation.clone();
        thread.clone_into(&mut self.conversation.thread);
        self.update(|entry, conversation| {
            conversation.thread.clone_into(&mut entry.conversation.thread);
            entry.confirmed = true;
        });
        if !before.thread.is_empty() {
            self.shared.markers.remove(&before);
        }
        self.shared.markers.write(&self.conversation);
        self.shared.forget_oldest();
        self.shared.changed();
    }

    /// Of `total`, which the program reports for the whole conversation, what is new.
    pub(crate) fn spent(&mut self, total: Usage) -> Usage {
        let spent = difference(self.conversation.total, total);
        self.conversation.total = total;
        self.update(|entry, conversation| entry.conversation.total = conversation.total);
        spent
    }

    /// The program does not know the conversation any more.
    pub(crate) fn lost(mut self) {
        if self.is_confirmed() {
            self.shared.markers.remove(&self.conversation);
        }
        self.conversation.thread.clear();
        self.update(|entry, _| entry.confirmed = false);
    }

    fn update(&self, change: impl FnOnce(&mut Entry, &Conversation)) {
        let mut state = self.shared.state.borrow_mut();
        let entry = state.entries.iter_mut().find(|entry| entry.conversation.handle == self.conversation.handle);
        if let Some(entry) = entry {
            change(entry, &self.conversation);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.update(|entry, _| {
            entry.busy = false;
            entry.conversation.used_unix_ms = unix_ms();
        });
        self.shared.state.borrow_mut().entries.retain(|entry| entry.confirmed || entry.busy);
        self.shared.changed();
    }
}

/// A program that counts anew (after it compacted its history) has spent all that it reports.
fn difference(before: Usage, total: Usage) -> Usage {
    let new = |before: Option<u64>, total: Option<u64>| {
        total.map(|total| total.checked_sub(before.unwrap_or(0)).unwrap_or(total))
    };
    Usage {
        input_tokens: new(before.input_tokens, total.input_tokens),
        output_tokens: new(before.output_tokens, total.output_tokens),
        cached_tokens: new(before.cached_tokens, total.cached_tokens),
    }
}

/// Whether `thread` may go into an argument and a file name.
fn is_id(thread: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=MAX_THREAD_BYTES).contains(&thread.len()) && thread.chars().all(allowed) && !thread.starts_with('-')
}

#[cfg(test)]
mod tests;
