//! Who died how often, and when it may be started again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use shared::protocol::SessionId;

/// Deaths older than this do not count.
const WINDOW: Duration = Duration::from_mins(1);

/// With so many deaths in the window it is left down.
const MAX_DEATHS: usize = 3;

/// The wait after the first death; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// Whose deaths are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// Workers that died before they had a session.
    Spare,
    /// The workers of one session.
    Session(SessionId),
}

/// Whether something may be started without being asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Now.
    Up,
    /// Not before.
    Wait(Instant),
    /// Not until somebody asks.
    Down,
}

/// The deaths of the last minute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(BTreeMap<Who, Deaths>);

#[derive(Clone, Debug, Default)]
struct Deaths {
    at: Vec<Instant>,
    down: bool,
    /// How the last one died, for people.
    why: String,
}

impl Deaths {
    fn recent(&self, now: Instant) -> usize {
        self.at.iter().filter(|at| now.saturating_duration_since(**at) < WINDOW).count()
    }
}

impl Tally {
    /// Counts a death.
    pub(crate) fn died(&mut self, who: Who, now: Instant, why: impl Into<String>) {
        let deaths = self.0.entry(who).or_default();
        deaths.why = why.into();
        deaths.at.retain(|at| now.saturating_duration_since(*at) < WINDOW);
        deaths.at.push(now);
        deaths.down = matches!(who, Who::Session(_)) && deaths.at.len() >= MAX_DEATHS;
    }

    /// Whether `who` may be started now. Workers without a session come back when their deaths
    /// are old; a session that was left down does so only when it is [asked for](Self::asked).
    pub(crate) fn verdict(&self, who: Who, now: Instant) -> Verdict {
        let Some(deaths) = self.0.get(&who) else { return Verdict::Up };
        let recent = deaths.recent(now);
        match who {
            Who::Session(_) if deaths.down => return Verdict::Down,
            Who::Spare if recent >= MAX_DEATHS => return Verdict::Down,
            Who::Session(_) | Who::Spare => {}
        }
        let Some(last) = deaths.at.last().filter(|_| recent > 0) else { return Verdict::Up };
        let doublings = u32::try_from(recent - 1).unwrap_or(u32::MAX).min(10);
        let due = *last + FIRST_WAIT * 2_u32.pow(doublings);
        if due <= now { Verdict::Up } else { Verdict::Wait(due) }
    }

    /// Somebody asked for `who`: it is no longer left down. Its deaths still count.
    pub(crate) fn asked(&mut self, who: Who) {
        if let Some(deaths) = self.0.get_mut(&who) {
            deaths.down = false;
        }
    }

    /// Deaths of `who` in the last minute.
    pub(crate) fn recent(&self, who: Who, now: Instant) -> u32 {
        self.0.get(&who).map_or(0, |deaths| u32::try_from(deaths.recent(now)).unwrap_or(u32::MAX))
    }

    /// Why a session has no worker: how it died last, and whether it was left down for that.
    pub(crate) fn why(&self, session: SessionId) -> Option<String> {
        let Deaths { at, down, why } = self.0.get(&Who::Session(session))?;
        let often = format!("left down after {} deaths in a minute, until somebody attaches; the last one: ", at.len());
        Some(format!("{}{why}", if *down { often.as_str() } else { "" }))
    }

    /// The sessions that are left down.
    pub(crate) fn down(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.0.iter().filter_map(|(who, deaths)| match who {
            Who::Session(session) if deaths.down => Some(*session),
            Who::Session(_) | Who::Spare => None,
        })
    }

    /// Forgets a session that was removed or closed.
    pub(crate) fn forget(&mut self, session: SessionId) {
        self.0.remove(&Who::Session(session));
    }

    /// Drops what no longer counts, so that the tally is bounded by the last minute.
    pub(crate) fn prune(&mut self, now: Instant) {
        self.0.retain(|_, deaths| deaths.down || deaths.recent(now) > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn each_death_doubles_the_wait_and_the_third_leaves_it_down() {
        let start = Instant::now();
        let who = Who::Session(SessionId::new());
        let mut tally = Tally::default();
        assert_eq!(tally.verdict(who, start), Verdict::Up);
        tally.died(who, start, "killed");
        assert_eq!(tally.verdict(who, start), Verdict::Wait(after(start, 100)));
        assert_eq!(tally.verdict(who, after(start, 100)), Verdict::Up);
        tally.died(who, after(start, 150), "killed");
        assert_eq!(tally.verdict(who, after(start, 150)), Verdict::Wait(after(start, 350)));
        tally.died(who, after(start, 400), "killed");
        assert_eq!(tally.verdict(who, after(start, 400)), Verdict::Down);
        assert_eq!(tally.recent(who, after(start, 400)), 3);
    }

    #[test]
    fn a_session_that_is_left_down_waits_for_somebody_to_ask() {
        let start = Instant::now();
        let session = SessionId::new();
        let who = Who::Session(session);
        let mut tally = Tally::default();
        for ms in [0, 1, 2] {
            tally.died(who, after(start, ms), "killed");
        }
        let later = after(start, 600_000);
        tally.prune(later);
        assert_eq!(tally.verdict(who, later), Verdict::Down);
        assert_eq!(tally.down().collect::<Vec<_>>(), [session]);
        let why = "left down after 3 deaths in a minute, until somebody attaches; the last one: killed";
        assert_eq!(tally.why(session).as_deref(), Some(why));
        tally.asked(who);
        assert_eq!(tally.verdict(who, later), Verdict::Up);
        assert_eq!(tally.down().count(), 0);
        assert_eq!(tally.why(session).as_deref(), Some("killed"));
    }

    #[test]
    fn spares_come_back_when_their_deaths_are_old() {
        let start = Instant::now();
        let mut tally = Tally::default();
        for ms in [0, 1, 2] {
            tally.died(Who::Spare, after(start, ms), "killed");
        }
        assert_eq!(tally.verdict(Who::Spare, after(start, 59_000)), Verdict::Down);
        assert_eq!(tally.verdict(Who::Spare, after(start, 61_000)), Verdict::Up);
        tally.prune(after(start, 61_000));
        assert!(tally.0.is_empty());
    }

    #[test]
    fn three_deaths_in_more_than_a_minute_do_not_leave_it_down() {
        let start = Instant::now();
        let who = Who::Session(SessionId::new());
        let mut tally = Tally::default();
        for ms in [0, 40_000, 80_000] {
            tally.died(who, after(start, ms), "killed");
        }
        assert_eq!(tally.verdict(who, after(start, 90_000)), Verdict::Up);
    }
}
