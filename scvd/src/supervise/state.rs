//! What a worker may become: the state machine, as a function of values.
//!
//! No clock, no process, no descriptor: whoever calls [`next`] carries the actions out.

use shared::link::EndReason;
use shared::protocol::SessionId;

/// Where a worker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Spawned or found; it has not said hello.
    Starting,
    /// It may start processes and has no session.
    Spare,
    /// It runs a session.
    Serving {
        /// The session.
        session: SessionId,
        /// Hand-overs that it has not answered.
        owed: u32,
        /// Whether the session is really there: a client was taken, or the worker said so.
        taken: bool,
    },
    /// It was told that it may leave.
    Leaving {
        /// The session that it ran.
        session: Option<SessionId>,
    },
    /// It was told to end, or killed.
    Ending {
        /// The session that it ran.
        session: Option<SessionId>,
    },
    /// It has exited; what it left is being ended.
    Dead {
        /// The session that it ran.
        session: Option<SessionId>,
    },
}

/// What happens to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Both sides said hello.
    Greeted {
        /// The session that it runs already.
        session: Option<SessionId>,
    },
    /// A client of this session is about to be handed to it.
    Assigned {
        /// The session.
        session: SessionId,
    },
    /// It is told to start this wanted session without a client.
    Resumed {
        /// The session.
        session: SessionId,
    },
    /// It took a hand-over.
    Taken,
    /// It refused a hand-over.
    Refused,
    /// It did not answer a hand-over in time.
    Unanswered,
    /// It has given its session away.
    Moved,
    /// It gets a session that another one gave away.
    Given {
        /// The session.
        session: SessionId,
    },
    /// It wants to leave.
    WantsToLeave,
    /// It has to end.
    EndAsked(EndReason),
    /// The time to leave or to end is over.
    GraceOver,
    /// It did not say hello in time, or not a hello that we understand.
    Deaf,
    /// Its link broke.
    LinkLost,
    /// Its process is gone.
    Exited {
        /// Whether it exited with success.
        clean: bool,
    },
}

/// What has to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Tell it that it may start processes.
    Go,
    /// Tell it to start the session from its journal.
    Resume(SessionId),
    /// Tell it that it may leave.
    MayLeave,
    /// Tell it to end.
    End(EndReason),
    /// Start the grace of [`Event::GraceOver`].
    StartGrace,
    /// SIGKILL.
    Kill,
    /// Connect to it again.
    Reconnect,
    /// End what it left, forget it, and see whether its session is wanted.
    Bury(Death),
    /// Look whether another worker is needed.
    Reconcile,
}

/// Whose wish the end of a worker was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// It had asked to leave, or was told to end.
    Wished,
    /// It exited with success, unasked: somebody else sent it SIGTERM.
    Unasked,
    /// It failed or was killed.
    Crash,
}

impl State {
    /// The session that this worker runs, ran or is about to run.
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self {
            Self::Starting | Self::Spare => None,
            Self::Serving { session, .. } => Some(*session),
            Self::Leaving { session } | Self::Ending { session } | Self::Dead { session } => *session,
        }
    }
}

/// The next state, and what to do. An event that means nothing in a state changes nothing.
pub(crate) fn next(state: State, event: &Event) -> (State, Vec<Action>) {
    use State::{Dead, Ending, Leaving, Serving, Spare, Starting};
    match (state, event) {
        (Dead { session }, _) => (Dead { session }, vec![]),

        (state, Event::Exited { clean }) => {
            // Somebody wished the end of those that leave or end, however they did it.
            let death = match (&state, clean) {
                (Leaving { .. } | Ending { .. }, _) => Death::Wished,
                (_, true) => Death::Unasked,
                (_, false) => Death::Crash,
            };
            (Dead { session: state.session() }, vec![Action::Bury(death)])
        }

        (Starting, Event::Greeted { session: None }) => (Spare, vec![Action::Go, Action::Reconcile]),
        (Starting, Event::Greeted { session: Some(session) }) => {
            (Serving { session: *session, owed: 0, taken: true }, vec![Action::Go, Action::Reconcile])
        }
        // After a broken link: it is where it was, and needs no second `go` to stay there.
        (state @ (Spare | Serving { .. }), Event::Greeted { .. }) => (state, vec![Action::Go]),

        // No look for a new spare yet: its start would keep the client waiting.
        (Spare, Event::Assigned { session }) => (Serving { session: *session, owed: 1, taken: false }, vec![]),
        (Serving { session, owed, taken }, Event::Assigned { .. }) => {
            (Serving { session, owed: owed + 1, taken }, vec![])
        }
        (Spare, Event::Resumed { session }) => {
            (Serving { session: *session, owed: 0, taken: true }, vec![Action::Resume(*session), Action::Reconcile])
        }

        (Serving { session, owed, .. }, Event::Taken) => {
            (Serving { session, owed: owed.saturating_sub(1), taken: true }, vec![Action::Reconcile])
        }
        // A worker that could not take its first client is not used for another session: what it
        // has read by then (configuration, environment) was that one's.
        (Serving { session, owed: 0..=1, taken: false }, Event::Refused) => {
            (Ending { session: Some(session) }, vec![Action::End(EndReason::Closed), Action::StartGrace])
        }
        // Killed before anybody else gets the client: two workers never hold one connection.
        (Serving { session, taken: false, .. }, Event::Unanswered) => {
            (Ending { session: Some(session) }, vec![Action::Kill])
        }
        (Serving { session, owed, taken }, Event::Refused | Event::Unanswered) => {
            (Serving { session, owed: owed.saturating_sub(1), taken }, vec![])
        }

        // It exits by itself; whoever asks for its session from now on gets the next worker.
        (Serving { .. }, Event::Moved) => (Leaving { session: None }, vec![Action::StartGrace]),
        (Spare, Event::Given { session }) => {
            (Serving { session: *session, owed: 0, taken: true }, vec![Action::Reconcile])
        }

        (Spare, Event::WantsToLeave) => (Leaving { session: None }, vec![Action::MayLeave, Action::StartGrace]),
        (Serving { session, owed: 0, .. }, Event::WantsToLeave) => {
            (Leaving { session: Some(session) }, vec![Action::MayLeave, Action::StartGrace])
        }

        (Starting, Event::EndAsked(_)) => (Ending { session: None }, vec![Action::Kill]),
        (state @ (Spare | Serving { .. } | Leaving { .. }), Event::EndAsked(reason)) => {
            (Ending { session: state.session() }, vec![Action::End(*reason), Action::StartGrace])
        }

        (state @ (Spare | Serving { .. }), Event::LinkLost) => (state, vec![Action::Reconnect]),
        // The state stays: a deaf worker's end was no wish, so its session counts as crashed.
        (state @ (Starting | Spare | Serving { .. }), Event::Deaf)
        | (state @ Starting, Event::LinkLost)
        | (state @ (Leaving { .. } | Ending { .. }), Event::GraceOver) => (state, vec![Action::Kill]),

        (
            state,
            Event::Greeted { .. }
            | Event::Assigned { .. }
            | Event::Resumed { .. }
            | Event::Taken
            | Event::Refused
            | Event::Unanswered
            | Event::Moved
            | Event::Given { .. }
            | Event::WantsToLeave
            | Event::EndAsked(_)
            | Event::GraceOver
            | Event::Deaf
            | Event::LinkLost,
        ) => (state, vec![]),
    }
}

#[cfg(test)]
mod tests;
