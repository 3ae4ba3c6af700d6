//! `sessions`: the live ones, merged with those on disk, newest first.
//!
//! The disk is read here and nowhere else, one page at a time.

use std::collections::BTreeSet;

use shared::clock;
use shared::layout::Layout;
use shared::protocol::SessionId;
use shared::protocol::client::Chat;
use shared::protocol::control::{SessionEntry, SessionState, Sessions, Status};
use shared::registry::SessionMeta;

use super::figures::Figures;
use super::status::{count, status};
use crate::daemon::Daemon;

/// Sessions on a page.
const PAGE: usize = 100;

/// The status with one page of sessions; without `all` closed ones are left out of it. With a chat:
/// those that serve it, of all pages, so that a channel finds its conversation again.
pub(super) fn sessions(daemon: &Daemon, all: bool, page: u32, chat: Option<&Chat>) -> Status {
    let mut ids = on_disk(&daemon.layout);
    let live = daemon.workers.entries();
    ids.extend(live.iter().filter_map(|entry| entry.id.parse::<SessionId>().ok()));
    let (page_ids, next_page) =
        if chat.is_some() { (ids.iter().rev().copied().collect(), None) } else { cut(&ids, page) };
    let down = daemon.workers.down();
    let entries = page_ids
        .into_iter()
        .filter_map(|id| live_entry(daemon, id).or_else(|| at_rest(&daemon.layout, id, &down)))
        .filter(|entry| all || entry.state != SessionState::Closed)
        .filter(|entry| chat.is_none_or(|chat| entry.chat.as_ref() == Some(chat)))
        .collect();
    let status = status(daemon);
    let sessions = Sessions {
        hibernated: Some(count(ids.len().saturating_sub(live.len()))),
        entries: Some(entries),
        next_page,
        ..status.sessions.clone().unwrap_or_default()
    };
    Status { sessions: Some(sessions), ..status }
}

/// A session that has a worker, with what the two use.
fn live_entry(daemon: &Daemon, id: SessionId) -> Option<SessionEntry> {
    let entry = daemon.workers.entry(id)?;
    let Figures { memory_bytes, cpu_ms } =
        daemon.workers.of_session(id).map(|worker| Figures::of(daemon, &worker)).unwrap_or_default();
    Some(SessionEntry { memory_bytes, cpu_ms, ..entry })
}

fn on_disk(layout: &Layout) -> BTreeSet<SessionId> {
    let found = std::fs::read_dir(layout.sessions()).into_iter().flatten().flatten();
    found.filter_map(|dir| dir.file_name().to_str()?.parse().ok()).collect()
}

/// One page, newest first, and the next page's number if there is one. Our ids sort by their age.
fn cut(ids: &BTreeSet<SessionId>, page: u32) -> (Vec<SessionId>, Option<u32>) {
    let from = usize::try_from(page).unwrap_or(usize::MAX).saturating_mul(PAGE);
    let cut = ids.iter().rev().skip(from).take(PAGE).copied().collect();
    (cut, page.checked_add(1).filter(|_| ids.len() > from.saturating_add(PAGE)))
}

/// A session without a worker; none if it was removed since its name was read.
fn at_rest(layout: &Layout, id: SessionId, down: &BTreeSet<SessionId>) -> Option<SessionEntry> {
    let dir = layout.session(id);
    // A session that has accepted nothing has no meta file, and one that is damaged is listed as well.
    let meta = SessionMeta::load(&dir).ok().flatten().unwrap_or_default();
    let touched = dir.journal().metadata().or_else(|_| dir.path().metadata()).and_then(|file| file.modified()).ok()?;
    let last_active_unix_ms = clock::to_unix_ms(touched);
    Some(SessionEntry {
        id: id.to_string(),
        title: meta.title,
        cwd: meta.cwd,
        chat: meta.chat,
        state: state_at_rest(down.contains(&id), layout.wanted_session(id).exists(), meta.closed),
        since_unix_ms: meta.closed_unix_ms.unwrap_or(last_active_unix_ms),
        created_unix_ms: meta.created_unix_ms,
        last_active_unix_ms,
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
    fn pages_have_a_hundred_each_newest_first() {
        let ids: BTreeSet<SessionId> = (0..250).map(|_| SessionId::new()).collect();
        let newest_first: Vec<SessionId> = ids.iter().rev().copied().collect();
        assert_eq!(cut(&ids, 0), (newest_first[..100].to_vec(), Some(1)));
        assert_eq!(cut(&ids, 2), (newest_first[200..].to_vec(), None));
        assert_eq!(cut(&ids, u32::MAX), (vec![], None));
        assert_eq!(cut(&ids.iter().take(100).copied().collect(), 0).1, None);
    }

    #[test]
    fn what_is_wanted_has_crashed_and_what_keeps_dying_has_failed() {
        assert_eq!(state_at_rest(true, true, false), SessionState::Failed);
        assert_eq!(state_at_rest(false, true, true), SessionState::Crashed);
        assert_eq!(state_at_rest(false, false, true), SessionState::Closed);
        assert_eq!(state_at_rest(false, false, false), SessionState::Hibernated);
    }
}
