//! Closed sessions that nobody came back to for `session.keep_closed_days`: they are removed.
//!
//! A few are looked at in each round, so that thousands of them cost no round much. One that is not
//! closed is never removed, however old it is.

use std::rc::Rc;
use std::time::{Duration, Instant};

use shared::clock;
use shared::fs::{self, Lock};
use shared::layout::Layout;
use shared::protocol::{SessionId, ids};
use shared::registry::SessionMeta;
use tracing::{info, warn};

use crate::control::remove_trash;
use crate::daemon::Daemon;

/// Sessions that are read in one round.
const PER_ROUND: usize = 100;

/// Days are counted: to look at everything once in this time is enough.
const PASS_EVERY: Duration = Duration::from_hours(1);

/// How far the pass over all sessions has come.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    /// The last one that was looked at.
    after: Option<SessionId>,
    /// When the next pass begins; none while one is under way.
    next_pass: Option<Instant>,
}

impl Expiry {
    /// Looks at the next few sessions and removes those whose time has come.
    pub(super) async fn round(&mut self, daemon: &Rc<Daemon>, now: Instant) {
        if self.next_pass.is_some_and(|at| now < at) || daemon.is_stopping() {
            return;
        }
        let ids = daemon.index.ids();
        let closed_before = closed_before(clock::unix_ms(), daemon.settings.borrow().keep_closed);
        let candidates = self.next(&ids, closed_before, now);
        let busy = daemon.workers.sessions();
        let candidates: Vec<SessionId> = candidates.into_iter().filter(|id| !busy.contains(id)).collect();
        if candidates.is_empty() {
            return;
        }
        let layout = daemon.layout.clone();
        // Beside everything else: a disk may take its time.
        let removed = tokio::task::spawn_blocking(move || remove_expired(&layout, &candidates, closed_before)).await;
        let removed = removed.unwrap_or_default();
        for session in &removed {
            info!(%session, "removed a closed session: session.keep_closed_days have passed");
            daemon.workers.forgive(*session);
            daemon.hub.gone(*session);
        }
        if !removed.is_empty() {
            remove_trash(&daemon.layout);
        }
    }

    /// The next few of `ids` (sorted) that may have been closed before `closed_before`.
    fn next(&mut self, ids: &[SessionId], closed_before: u64, now: Instant) -> Vec<SessionId> {
        let from = self.after.map_or(0, |after| ids.partition_point(|id| *id <= after));
        let mut old = ids[from..].iter().copied().filter(|id| may_be_older(*id, closed_before));
        let next: Vec<SessionId> = old.by_ref().take(PER_ROUND).collect();
        let goes_on = old.next().is_some();
        self.after = next.last().copied().filter(|_| goes_on);
        self.next_pass = (!goes_on).then(|| now + PASS_EVERY);
        next
    }
}

fn closed_before(now_unix_ms: u64, keep: Duration) -> u64 {
    now_unix_ms.saturating_sub(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX))
}

/// Whether a session of this id may be older than that time: ours tell when they were made, those
/// that a client chose tell nothing.
fn may_be_older(id: SessionId, unix_ms: u64) -> bool {
    id.as_uuid().get_timestamp().is_none_or(|made| {
        let (seconds, nanos) = made.to_unix();
        seconds.saturating_mul(1000) + u64::from(nanos) / 1_000_000 < unix_ms
    })
}

/// Whether it was closed before that time.
fn is_expired(meta: &SessionMeta, closed_before: u64) -> bool {
    meta.closed && meta.closed_unix_ms.is_some_and(|at| at < closed_before)
}

/// Removes those of `candidates` that were closed before `closed_before`; which these were.
fn remove_expired(layout: &Layout, candidates: &[SessionId], closed_before: u64) -> Vec<SessionId> {
    let expired = |id: SessionId| matches!(SessionMeta::load(&layout.session(id)), Ok(Some(meta)) if is_expired(&meta, closed_before));
    let remove = |id: SessionId| -> std::io::Result<bool> {
        let dir = layout.session(id);
        let Some(_owner) = Lock::try_acquire(&dir.lock())? else { return Ok(false) };
        // Somebody may have attached to it since, or wait for it.
        if !expired(id) || layout.wanted_session(id).exists() {
            return Ok(false);
        }
        std::fs::rename(dir.path(), layout.trash().join(ids::fresh()))?;
        Ok(true)
    };
    let old = candidates.iter().copied().filter(|id| expired(*id));
    let removed: Vec<SessionId> = old
        .filter(|id| {
            remove(*id).unwrap_or_else(|cause| {
                warn!(session = %id, "cannot remove a session that was closed long ago: {cause}");
                false
            })
        })
        .collect();
    if !removed.is_empty()
        && let Err(cause) = fs::sync_dir(&layout.sessions())
    {
        // After a power cut they are back, and are removed again.
        warn!("cannot make the removal of sessions durable: {cause}");
    }
    removed
}

#[cfg(test)]
mod tests {
    use shared::fs::Sync;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn made(unix_ms: u64, n: u128) -> SessionId {
        // As UUID version 7 (RFC 9562, 5.7).
        format!("{:032x}", u128::from(unix_ms) << 80 | 0x7000_8000_0000_0000_0000 | n).parse().unwrap()
    }

    fn chosen(n: u128) -> SessionId {
        format!("{:032x}", 0x4000_8000_0000_0000_0000 | n).parse().unwrap()
    }

    #[test]
    fn every_session_that_may_be_old_is_looked_at_once_a_pass() {
        let now = Instant::now();
        let mut ids: Vec<SessionId> = (0..250).map(|n| made(1000, n)).chain((0..50).map(|n| made(2000, n))).collect();
        ids.push(chosen(1));
        ids.sort_unstable();
        let mut expiry = Expiry::default();
        let mut seen = Vec::new();
        while expiry.next_pass.is_none() {
            let next = expiry.next(&ids, 2000, now);
            assert!(next.len() <= PER_ROUND);
            seen.extend(next);
        }
        let expected: Vec<SessionId> = ids.iter().copied().filter(|id| may_be_older(*id, 2000)).collect();
        assert_eq!((seen.len(), seen), (251, expected));
        assert_eq!((expiry.next_pass, expiry.after), (Some(now + PASS_EVERY), None));
    }

    #[test]
    fn only_what_was_closed_long_ago_and_is_nobodys_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        layout.create().unwrap();
        fs::private_dir(&layout.trash()).unwrap();
        let session = |n: u128, closed: bool, at: Option<u64>| {
            let id = chosen(n);
            fs::private_dir(layout.session(id).path()).unwrap();
            let meta = SessionMeta { id, closed, closed_unix_ms: at, ..SessionMeta::default() };
            meta.save(&layout.session(id), Sync::Lazy).unwrap();
            id
        };
        let (old, young, open) = (session(1, true, Some(10)), session(2, true, Some(20)), session(3, false, Some(10)));
        let (untold, held, wanted) = (session(4, true, None), session(5, true, Some(10)), session(6, true, Some(10)));
        let damaged = session(7, true, Some(10));
        std::fs::write(layout.session(damaged).meta(), "{").unwrap();
        std::fs::write(layout.wanted_session(wanted), "").unwrap();
        let lock = Lock::try_acquire(&layout.session(held).lock()).unwrap();
        let all = [old, young, open, untold, held, wanted, damaged];
        assert_eq!(remove_expired(&layout, &all, 20), [old]);
        assert!(!layout.session(old).path().exists());
        assert!(all[1..].iter().all(|id| layout.session(*id).meta().exists()));
        drop(lock);
        assert_eq!(remove_expired(&layout, &all, 20), [held]);
    }

    #[test]
    fn the_time_counts_from_the_end_of_the_session() {
        let meta = |closed_unix_ms| SessionMeta { closed: true, closed_unix_ms, ..SessionMeta::default() };
        let day = u64::try_from(DAY.as_millis()).unwrap();
        let limit = closed_before(31 * day, 30 * DAY);
        assert!(is_expired(&meta(Some(day - 1)), limit) && !is_expired(&meta(Some(day)), limit));
        assert_eq!(closed_before(1, DAY), 0, "a clock that is far behind removes nothing");
    }
}
