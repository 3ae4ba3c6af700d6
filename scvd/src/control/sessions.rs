//! `sessions`: the live ones, merged with those on disk, newest first.
//!
//! The sessions of one page are read here, and no other: a page costs the same whatever lies behind it.

mod page;

use std::collections::BTreeSet;

use shared::clock;
use shared::protocol::SessionId;
use shared::protocol::control::{SessionEntry, SessionList, SessionState, Sessions, Status};
use shared::registry::SessionMeta;

use super::figures::Figures;
use super::status::status;
use crate::daemon::Daemon;
use page::{Page, page};

/// The status with one page of sessions; without `all` closed ones are left out of it.
pub(super) fn sessions(daemon: &Daemon, list: &SessionList) -> Status {
    let live: BTreeSet<SessionId> = daemon.workers.entries().iter().filter_map(|entry| entry.id.parse().ok()).collect();
    let Page { ids, next, next_page } = page(&daemon.index.ids(), &live, list);
    let down = daemon.workers.down();
    let entries = ids
        .into_iter()
        .filter_map(|id| live_entry(daemon, id).or_else(|| at_rest(daemon, id, &down)))
        .filter(|entry| list.all || entry.state != SessionState::Closed)
        .filter(|entry| list.chat.is_none() || entry.chat == list.chat)
        .collect();
    let status = status(daemon);
    let counts = status.sessions.clone().unwrap_or_default();
    Status { sessions: Some(Sessions { entries: Some(entries), next, next_page, ..counts }), ..status }
}

/// A session that has a worker, with what the two use.
fn live_entry(daemon: &Daemon, id: SessionId) -> Option<SessionEntry> {
    let entry = daemon.workers.entry(id)?;
    let Figures { memory_bytes, cpu_ms } =
        daemon.workers.of_session(id).map(|worker| Figures::of(daemon, &worker)).unwrap_or_default();
    Some(SessionEntry { memory_bytes, cpu_ms, ..entry })
}

/// A session without a worker; none if it was removed since its name was read.
fn at_rest(daemon: &Daemon, id: SessionId, down: &BTreeSet<SessionId>) -> Option<SessionEntry> {
    let layout = &daemon.layout;
    let dir = layout.session(id);
    // A session that has accepted nothing has no meta file, and one that is damaged is listed as well.
    let meta = SessionMeta::load(&dir).ok().flatten().unwrap_or_default();
    let touched = dir.journal().metadata().or_else(|_| dir.path().metadata()).and_then(|file| file.modified()).ok()?;
    let last_active_unix_ms = clock::to_unix_ms(touched);
    let state = state_at_rest(down.contains(&id), layout.wanted_session(id).exists(), meta.closed);
    let has_died = matches!(state, SessionState::Failed | SessionState::Crashed);
    Some(SessionEntry {
        id: id.to_string(),
        title: meta.title,
        cwd: meta.cwd,
        chat: meta.chat,
        state,
        reason: has_died.then(|| daemon.workers.why_down(id)).flatten(),
        since_unix_ms: meta.closed_unix_ms.unwrap_or(last_active_unix_ms),
        created_unix_ms: meta.created_unix_ms,
        last_active_unix_ms,
        last_prompt: meta.last_prompt,
        ..SessionEntry::default()
    })
}

fn state_at_rest(down: bool, wanted: bool, closed: bool) -> SessionState {
    match (down, wanted, closed) {
        (true, _, _) => SessionState::Failed,
        (false, true, _) => SessionState::Crashed,
        (false, false, true) => SessionState::Closed,
        (false, false, false) => SessionState::Hibernated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_has_crashed_and_what_keeps_dying_has_failed() {
        assert_eq!(state_at_rest(true, true, false), SessionState::Failed);
        assert_eq!(state_at_rest(false, true, true), SessionState::Crashed);
        assert_eq!(state_at_rest(false, false, true), SessionState::Closed);
        assert_eq!(state_at_rest(false, false, false), SessionState::Hibernated);
    }
}
