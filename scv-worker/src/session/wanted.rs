//! What the session leaves for others to find: its mark in `wanted/`, its meta file, its state
//! line, its usage lines.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use serde::Serialize;
use shared::clock;
use shared::fs;
use shared::link::ToSupervisor;
use shared::protocol::control::SessionEntry;
use shared::protocol::server::Usage;
use shared::text;

use super::Session;
use super::journal::Kept;

/// Events that stay in the journal when a snapshot replaces what came before them.
const KEPT_EVENTS: usize = 2000;

/// A journal that is loaded in about a millisecond is left as it is.
const LOADED_AT_ONCE: u64 = 256 << 10;

/// Longest text of what runs, in a list.
const ACTIVITY_BYTES: usize = 120;

/// One line of `state/usage/<day>.jsonl`.
#[derive(Debug, Serialize)]
struct UsageLine<'a> {
    at: u64,
    session: String,
    model: &'a str,
    #[serde(flatten)]
    usage: Usage,
}

impl Session {
    /// Marks the session as one to start again after a crash: before a prompt is accepted.
    pub(super) fn want(&mut self) -> io::Result<()> {
        if !self.wanted {
            fs::replace(&self.layout.wanted_session(self.id), b"", fs::Sync::Durable)?;
            self.wanted = true;
        }
        Ok(())
    }

    /// Nothing runs and nothing waits unpaused any more.
    pub(super) fn unwant(&mut self) {
        let waits = !self.state.queue.is_empty() && !self.state.paused;
        // An end that is not in the journal yet is told again by whoever starts the session next.
        let busy = self.running.is_some() || waits || !self.owed.is_empty();
        if self.wanted && !busy {
            match fs::remove(&self.layout.wanted_session(self.id)) {
                Ok(()) => self.wanted = false,
                // It costs a needless start after a crash.
                Err(error) => tracing::warn!(%error, "cannot remove the mark of a wanted session"),
            }
        }
    }

    /// Makes the session itself durable, before the first thing that must not be lost: a session
    /// that has accepted nothing has nothing to lose, and its start costs no disk.
    pub(super) fn make_durable(&mut self) -> io::Result<()> {
        if !self.durable {
            self.meta.save(&self.dir, fs::Sync::Durable)?;
            match std::fs::File::open(self.dir.env()) {
                Ok(env) => env.sync_all()?,
                // It has none: it runs in the supervisor's.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            fs::sync_dir(&self.layout.sessions())?;
            self.durable = true;
        }
        Ok(())
    }

    /// Writes the meta file. That it cannot be written costs only what changed in it.
    pub(super) fn save_meta(&mut self) {
        self.meta.last_prompt.clone_from(&self.state.last_prompt);
        // A rename without a sync may leave an empty file after a power cut: no session to come back to.
        let sync = if self.state.last_prompt.is_some() { fs::Sync::Durable } else { fs::Sync::Lazy };
        if let Err(error) = self.meta.save(&self.dir, sync) {
            tracing::warn!(%error, "cannot write the session's meta file");
        }
    }

    /// Pushes what the session does now to the supervisor's lists.
    pub(super) fn say_state(&self) {
        let turn = self.state.turn.as_ref();
        let entry = SessionEntry {
            reason: None,
            id: self.id.to_string(),
            title: self.meta.title.as_deref().map(|title| text::one_line(title, ACTIVITY_BYTES)),
            cwd: self.meta.cwd.clone(),
            chat: self.meta.chat.clone(),
            state: self.state_now(),
            clients: u32::try_from(self.clients.len()).unwrap_or(u32::MAX),
            worker_pid: i32::try_from(std::process::id()).ok(),
            // The supervisor knows.
            worker_version: None,
            // The supervisor counts them.
            memory_bytes: None,
            cpu_ms: None,
            turn: turn.map(|turn| turn.turn_id.clone()),
            queue: u32::try_from(self.state.queue.len()).unwrap_or(u32::MAX),
            approvals: u32::try_from(self.broker.len()).unwrap_or(u32::MAX),
            jobs: 0,
            activity: self
                .running
                .as_ref()
                .map(|running| text::one_line(&running.activity, ACTIVITY_BYTES))
                .filter(|activity| !activity.is_empty()),
            since_unix_ms: turn.map_or(self.state.last_active, |turn| turn.since),
            created_unix_ms: self.meta.created_unix_ms,
            last_active_unix_ms: self.state.last_active.max(self.meta.created_unix_ms),
            last_prompt: self.state.last_prompt.clone(),
            usage: Some(self.state.usage),
        };
        self.link.say(ToSupervisor::State { entry: Box::new(entry) });
    }

    /// Adds a turn's tokens to the day's file.
    pub(super) fn write_usage(&self, usage: Option<Usage>) {
        let Some(usage) = usage.filter(|usage| *usage != Usage::default()) else { return };
        let at = clock::unix_ms();
        let line = UsageLine { at, session: self.id.to_string(), model: &self.model, usage };
        let write = || -> io::Result<()> {
            let mut line = serde_json::to_vec(&line)?;
            line.push(b'\n');
            let path = self.layout.usage().join(format!("{}.jsonl", day(at)));
            std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?.write_all(&line)
        };
        if let Err(error) = write() {
            tracing::warn!(%error, "cannot write the usage of a turn");
        }
    }

    /// Replaces the older part of a long journal by a snapshot.
    pub(super) fn compact(&mut self) {
        if self.running.is_none() && self.journal.len() > self.config.session.journal_max_bytes {
            self.shorten();
        }
    }

    /// Before a sleep: whoever wakes the session waits for its journal.
    pub(super) fn compact_for_sleep(&mut self) {
        if self.journal.to_load() > LOADED_AT_ONCE {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        // Loading applies the kept events first, then the snapshot replaces all of it.
        let kept = Kept { events: KEPT_EVENTS, bytes: self.config.session.journal_max_bytes / 2 };
        if let Err(error) = self.journal.compact(kept, &self.state) {
            tracing::warn!(%error, "cannot shorten the journal; it goes on growing");
        }
    }
}

/// The UTC day, such as `2026-11-30`.
fn day(unix_ms: u64) -> String {
    let ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms)
        .map_or_else(|_| "unknown".to_owned(), |at| at.strftime("%Y-%m-%d").to_string())
}
