use std::time::Duration;

use super::*;

fn wanted() -> Wanted {
    Wanted { spares: 1, max_sessions: 4, ..Wanted::default() }
}

/// One spare, the socket, nothing else: nothing is to be done.
fn calm() -> Observed {
    Observed { spares: 1, socket: true, ..Observed::default() }
}

fn ids(count: usize) -> Vec<SessionId> {
    (0..count).map(|_| SessionId::new()).collect()
}

#[test]
fn nothing_is_done_when_all_is_as_it_should_be() {
    assert_eq!(plan(&wanted(), &calm(), Instant::now()), []);
}

#[test]
fn a_missing_spare_is_started_once() {
    let now = Instant::now();
    let none = Observed { spares: 0, ..calm() };
    assert_eq!(plan(&wanted(), &none, now), [Action::Spawn]);
    let starting = Observed { spares: 0, starting: 1, ..calm() };
    assert_eq!(plan(&wanted(), &starting, now), []);
}

#[test]
fn a_new_spare_lets_the_session_go_first_that_took_the_last_one() {
    let now = Instant::now();
    let just_taken = Observed { spares: 0, last_taken: Some(now), ..calm() };
    assert_eq!(plan(&wanted(), &just_taken, now), [Action::LookAt(now + SPARE_AFTER)]);
    assert_eq!(plan(&wanted(), &just_taken, now + SPARE_AFTER), [Action::Spawn]);
    assert_eq!(plan(&wanted(), &Observed { waiting: 1, ..just_taken }, now)[0], Action::Spawn);
    assert_eq!(plan(&wanted(), &Observed { last_taken: Some(now), ..calm() }, now), []);
}

#[test]
fn a_spare_too_many_is_ended_unless_somebody_waits() {
    let now = Instant::now();
    let two = Observed { spares: 2, ..calm() };
    assert_eq!(plan(&wanted(), &two, now), [Action::EndSpare]);
    assert_eq!(plan(&wanted(), &Observed { waiting: 1, ..two }, now), []);
}

#[test]
fn whoever_waits_gets_a_worker_but_not_all_at_once() {
    let now = Instant::now();
    let observed = Observed { spares: 0, starting: 3, waiting: 100, ..calm() };
    assert_eq!(plan(&wanted(), &observed, now), vec![Action::Spawn; MAX_STARTING - 3]);
}

#[test]
fn spares_that_keep_dying_are_left_down_but_not_those_that_somebody_waits_for() {
    let now = Instant::now();
    let mut observed = Observed { spares: 0, ..calm() };
    observed.tally.died(Who::Spare, now, "killed");
    assert_eq!(plan(&wanted(), &observed, now), [Action::LookAt(now + Duration::from_millis(100))]);
    observed.tally.died(Who::Spare, now, "killed");
    observed.tally.died(Who::Spare, now, "killed");
    assert_eq!(plan(&wanted(), &observed, now), []);
    observed.waiting = 1;
    assert_eq!(plan(&wanted(), &observed, now), [Action::Spawn]);
}

#[test]
fn a_wanted_session_without_a_worker_is_resumed_with_a_back_off() {
    let now = Instant::now();
    let id = SessionId::new();
    let wanted = Wanted { sessions: [id].into(), ..wanted() };
    let mut observed = calm();
    assert_eq!(plan(&wanted, &observed, now), [Action::Resume(id), Action::Spawn]);

    observed.tally.died(Who::Session(id), now, "killed");
    assert_eq!(plan(&wanted, &observed, now), [Action::LookAt(now + Duration::from_millis(100))]);
    observed.tally.died(Who::Session(id), now, "killed");
    observed.tally.died(Who::Session(id), now, "killed");
    assert_eq!(plan(&wanted, &observed, now + Duration::from_hours(1)), []);

    let served = Observed { sessions: [id].into(), ..calm() };
    assert_eq!(plan(&wanted, &served, now), []);
}

#[test]
fn no_more_sessions_are_resumed_than_may_be_live() {
    let now = Instant::now();
    let wanted = Wanted { sessions: ids(6).into_iter().collect(), ..wanted() };
    let observed = Observed { sessions: ids(2).into_iter().collect(), ..calm() };
    let resumed = plan(&wanted, &observed, now).into_iter().filter(|a| matches!(a, Action::Resume(_))).count();
    assert_eq!(resumed, 2);
}

#[test]
fn a_vanished_socket_is_bound_again_and_an_abandoned_bundle_swept() {
    let observed = Observed { socket: false, abandoned: vec!["a".into()], ..calm() };
    assert_eq!(plan(&wanted(), &observed, Instant::now()), [Action::Rebind, Action::Sweep("a".into())]);
}

#[test]
fn it_leaves_when_it_was_idle_for_long_enough_and_nothing_is_wanted() {
    let now = Instant::now();
    let limit = Duration::from_mins(10);
    let on_demand = Wanted { idle_exit: Some(limit), ..wanted() };
    let idle = Observed { idle_since: Some(now), ..calm() };
    assert_eq!(plan(&on_demand, &idle, now), [Action::LookAt(now + limit)]);
    assert_eq!(plan(&on_demand, &idle, now + limit), [Action::Leave]);
    assert_eq!(plan(&wanted(), &idle, now + limit), []);

    let down = SessionId::new();
    let mut busy = idle.clone();
    (0..3).for_each(|_| busy.tally.died(Who::Session(down), now, "killed"));
    let with_work = Wanted { sessions: [down].into(), ..on_demand };
    assert_eq!(plan(&with_work, &busy, now + limit), []);
}
