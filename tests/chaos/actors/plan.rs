//! What a user does next: a pure function of the dice and of what the user sees.

use crate::script::Step;

/// Prompts that a user has under way at most.
const OUTSTANDING: usize = 4;

/// Prompts after which a user takes a new session.
const PROMPTS_A_SESSION: usize = 30;

/// What a user sees.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    /// Nothing new is to be begun.
    pub rests: bool,
    /// Prompts whose end was not told.
    pub outstanding: usize,
    /// Prompts of this session.
    pub prompts: usize,
    /// A turn runs.
    pub running: bool,
    /// Prompts that wait.
    pub queued: usize,
    /// They wait for a person.
    pub paused: bool,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// A prompt with these steps; with a file.
    Prompt {
        steps: Vec<Step>,
        slowly: bool,
        attaches: bool,
    },
    Cancel,
    Pause(bool),
    /// Waiting prompt number so-and-so of the queue.
    Update(usize, Vec<Step>),
    Move(usize),
    Remove(usize),
    Clear,
    /// Goes, and comes back after so many milliseconds.
    Leave(u64),
    Detach,
    Close,
    /// Half a line, and gone.
    HalfLine,
    Garbage,
    TooLong,
    /// Gives the session up for a new one.
    NewSession,
    Nothing,
}

impl Deed {
    /// How often each comes, of a thousand; the rest is nothing.
    const WEIGHTS: [(&'static str, u32); 14] = [
        ("prompt", 400),
        ("cancel", 25),
        ("pause", 15),
        ("resume", 200),
        ("update", 25),
        ("move", 20),
        ("remove", 20),
        ("clear", 10),
        ("leave", 25),
        ("sleep", 6),
        ("detach", 6),
        ("close", 6),
        ("half", 6),
        ("garbage", 10),
    ];

    /// The next one.
    pub(crate) fn next(random: &mut fastrand::Rng, view: &View) -> Self {
        if view.paused && view.rests {
            return Self::Pause(false);
        }
        if view.outstanding == 0 && view.prompts >= PROMPTS_A_SESSION {
            return Self::NewSession;
        }
        let mut number = random.u32(..1000);
        let name = Self::WEIGHTS.iter().find(|(_, weight)| {
            let hit = number < *weight;
            number = number.saturating_sub(*weight);
            hit
        });
        let may_begin = !view.rests && view.outstanding < OUTSTANDING && view.prompts < PROMPTS_A_SESSION;
        match name.map_or("", |(name, _)| name) {
            "prompt" if may_begin => {
                let (steps, slowly) = (Step::some(random), random.u8(..4) == 0);
                Self::Prompt { steps, slowly, attaches: random.u8(..6) == 0 }
            }
            "cancel" if view.running => Self::Cancel,
            "pause" if !view.rests && !view.paused => Self::Pause(true),
            "resume" if view.paused => Self::Pause(false),
            "update" if view.queued > 0 => Self::Update(random.usize(..view.queued), Step::some(random)),
            "move" if view.queued > 1 => Self::Move(random.usize(..view.queued)),
            "remove" if view.queued > 0 => Self::Remove(random.usize(..view.queued)),
            "clear" if !view.running && !view.rests => Self::Clear,
            "leave" => Self::Leave(random.u64(..300)),
            // Longer than `session.hibernate_seconds`.
            "sleep" if !view.rests => Self::Leave(random.u64(1_200..4_000)),
            "detach" => Self::Detach,
            "close" if !view.rests => Self::Close,
            "half" => Self::HalfLine,
            "garbage" if random.u8(..10) == 0 => Self::TooLong,
            "garbage" => Self::Garbage,
            _ => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deeds(view: &View) -> Vec<Deed> {
        let mut random = fastrand::Rng::with_seed(7);
        (0..5000).map(|_| Deed::next(&mut random, view)).collect()
    }

    #[test]
    fn a_seed_is_a_schedule() {
        let view = View { running: true, queued: 2, outstanding: 3, prompts: 3, ..View::default() };
        assert_eq!(deeds(&view), deeds(&view));
    }

    #[test]
    fn who_rests_begins_nothing_and_lets_go_on_what_waits() {
        let resting = View { rests: true, outstanding: 1, prompts: 1, ..View::default() };
        let begins = |deed: &Deed| matches!(deed, Deed::Prompt { .. } | Deed::Pause(true) | Deed::Close | Deed::Clear);
        assert!(!deeds(&resting).iter().any(begins));
        assert!(deeds(&View { paused: true, ..resting }).iter().all(|deed| *deed == Deed::Pause(false)));
    }

    #[test]
    fn nobody_changes_a_queue_that_is_empty_or_cancels_what_does_not_run() {
        let idle = deeds(&View::default());
        let wrong = |deed: &Deed| {
            matches!(deed, Deed::Update(..) | Deed::Move(_) | Deed::Remove(_) | Deed::Cancel | Deed::Pause(false))
        };
        assert!(!idle.iter().any(wrong));
        assert!(idle.iter().any(|deed| matches!(deed, Deed::Prompt { .. })));
    }

    #[test]
    fn a_session_is_given_up_only_when_nothing_is_under_way() {
        let old = View { prompts: PROMPTS_A_SESSION, ..View::default() };
        assert!(deeds(&old).iter().all(|deed| *deed == Deed::NewSession));
        assert!(!deeds(&View { outstanding: 1, ..old }).contains(&Deed::NewSession));
    }
}
