//! From what should be and what is to what has to be done. Pure.

use std::time::{Duration, Instant};

use shared::protocol::SessionId;

use super::observed::Observed;
use super::wanted::Wanted;
use crate::supervise::{Verdict, Who};

/// Workers that start at the same time; more only take each other's processor.
const MAX_STARTING: usize = 8;

/// A new spare starts this long after a hand-over: until then the processor belongs to the session
/// that somebody waits for. A start costs a few milliseconds of it.
const SPARE_AFTER: Duration = Duration::from_millis(10);

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Bind the socket again.
    Rebind,
    /// End what is left of a worker, and remove its bundle.
    Sweep(String),
    /// Start a session that has work.
    Resume(SessionId),
    /// Start a worker.
    Spawn,
    /// End a worker that has no session.
    EndSpare,
    /// Look again at that time.
    LookAt(Instant),
    /// Leave: there is nothing to do here.
    Leave,
}

/// What has to be done now.
pub(crate) fn plan(wanted: &Wanted, observed: &Observed, now: Instant) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut look_at: Option<Instant> = None;
    let mut later = |at: Instant| look_at = Some(look_at.map_or(at, |earlier| earlier.min(at)));

    if !observed.socket {
        actions.push(Action::Rebind);
    }
    actions.extend(observed.abandoned.iter().cloned().map(Action::Sweep));

    let mut live = observed.sessions.len();
    let mut resumed = 0;
    for session in wanted.sessions.difference(&observed.sessions) {
        match observed.tally.verdict(Who::Session(*session), now) {
            Verdict::Up if live < wanted.max_sessions => {
                actions.push(Action::Resume(*session));
                live += 1;
                resumed += 1;
            }
            Verdict::Wait(at) => later(at),
            Verdict::Up | Verdict::Down => {}
        }
    }

    // Whoever waits gets a worker whatever the tally says; a spare nobody waits for does not.
    let short = observed.spares + observed.starting < wanted.spares;
    let quiet_from = observed.last_taken.map(|at| at + SPARE_AFTER).filter(|at| short && *at > now);
    let spares = match (observed.tally.verdict(Who::Spare, now), quiet_from) {
        (Verdict::Up, None) => wanted.spares,
        (Verdict::Up, Some(at)) | (Verdict::Wait(at), _) => {
            later(at);
            0
        }
        (Verdict::Down, _) => 0,
    };
    // Those that are resumed now are going to wait as well, and take the spares first.
    let needed = spares + observed.waiting + resumed;
    let have = observed.spares + observed.starting;
    let room = MAX_STARTING.saturating_sub(observed.starting);
    actions.extend((have..needed).take(room).map(|_| Action::Spawn));
    if observed.waiting + resumed == 0 {
        actions.extend((wanted.spares..observed.spares).map(|_| Action::EndSpare));
    }

    if let (Some(limit), Some(since), true) = (wanted.idle_exit, observed.idle_since, wanted.sessions.is_empty()) {
        if now.saturating_duration_since(since) >= limit {
            return vec![Action::Leave];
        }
        later(since + limit);
    }
    actions.extend(look_at.map(Action::LookAt));
    actions
}

#[cfg(test)]
mod tests;
