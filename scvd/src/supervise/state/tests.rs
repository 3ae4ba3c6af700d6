use super::*;
use EndReason::{Closed, Stopped};
use State::{Dead, Ending, Leaving, Serving, Spare, Starting};

fn id() -> SessionId {
    "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap()
}

fn serving(owed: u32, taken: bool) -> State {
    Serving { session: id(), owed, taken }
}

fn ending() -> State {
    Ending { session: Some(id()) }
}

#[test]
fn each_event_in_each_state_that_it_means_something_in() {
    let session = id();
    let some = Some(session);
    let table = [
        (Starting, Event::Greeted { session: None }, Spare, vec![Action::Go, Action::Reconcile]),
        (Starting, Event::Greeted { session: some }, serving(0, true), vec![Action::Go, Action::Reconcile]),
        (Starting, Event::Deaf, Starting, vec![Action::Kill]),
        (Starting, Event::LinkLost, Starting, vec![Action::Kill]),
        (Starting, Event::EndAsked(Stopped), Ending { session: None }, vec![Action::Kill]),
        (Spare, Event::Assigned { session }, serving(1, false), vec![]),
        (Spare, Event::Resumed { session }, serving(0, true), vec![Action::Resume(session), Action::Reconcile]),
        (Spare, Event::WantsToLeave, Leaving { session: None }, vec![Action::MayLeave, Action::StartGrace]),
        (Spare, Event::LinkLost, Spare, vec![Action::Reconnect]),
        (serving(1, false), Event::Assigned { session }, serving(2, false), vec![]),
        (serving(1, false), Event::Taken, serving(0, true), vec![Action::Reconcile]),
        (serving(1, false), Event::Refused, ending(), vec![Action::End(Closed), Action::StartGrace]),
        (serving(2, false), Event::Refused, serving(1, false), vec![]),
        (serving(1, true), Event::Refused, serving(0, true), vec![]),
        (serving(1, false), Event::Unanswered, ending(), vec![Action::Kill]),
        (serving(1, true), Event::Unanswered, serving(0, true), vec![]),
        (serving(0, true), Event::WantsToLeave, Leaving { session: some }, vec![Action::MayLeave, Action::StartGrace]),
        (serving(1, true), Event::WantsToLeave, serving(1, true), vec![]),
        (serving(1, true), Event::EndAsked(Stopped), ending(), vec![Action::End(Stopped), Action::StartGrace]),
        (serving(0, true), Event::LinkLost, serving(0, true), vec![Action::Reconnect]),
        (serving(0, true), Event::Greeted { session: some }, serving(0, true), vec![Action::Go]),
        (Leaving { session: some }, Event::Assigned { session }, Leaving { session: some }, vec![]),
        (Leaving { session: some }, Event::GraceOver, Leaving { session: some }, vec![Action::Kill]),
        (ending(), Event::GraceOver, ending(), vec![Action::Kill]),
        (ending(), Event::LinkLost, ending(), vec![]),
        (serving(0, true), Event::GraceOver, serving(0, true), vec![]),
    ];
    for (state, event, then, actions) in table {
        assert_eq!(next(state.clone(), &event), (then, actions), "{event:?} in {state:?}");
    }
}

#[test]
fn a_death_that_nobody_wished_is_a_crash() {
    let dead = |state: State, clean| next(state, &Event::Exited { clean });
    let buried = |session, death| (Dead { session }, vec![Action::Bury(death)]);
    let some = Some(id());
    assert_eq!(dead(serving(0, true), false), buried(some, Death::Crash));
    assert_eq!(dead(serving(0, true), true), buried(some, Death::Unasked));
    assert_eq!(dead(Starting, false), buried(None, Death::Crash));
    assert_eq!(dead(Spare, true), buried(None, Death::Unasked));
    assert_eq!(dead(Leaving { session: some }, false), buried(some, Death::Wished));
    assert_eq!(dead(ending(), false), buried(some, Death::Wished));
}

#[test]
fn a_dead_worker_stays_dead() {
    let dead = Dead { session: Some(id()) };
    for event in [Event::Taken, Event::EndAsked(Closed), Event::Exited { clean: false }, Event::LinkLost] {
        assert_eq!(next(dead.clone(), &event), (dead.clone(), vec![]));
    }
}
