//! Carries out what the state machine says.

use std::rc::Rc;
use std::time::Duration;

use shared::link::{EndReason, ToWorker};
use shared::process::Signal;
use tracing::{debug, warn};

use super::link::Link;
use super::state::{Action, Event, next};
use super::{claim, greet, life};
use crate::daemon::Daemon;
use crate::takeover::Stage;

/// What a worker gets to exit after it was told that its session is closed, before it is killed.
pub(super) const CLOSE_GRACE: Duration = Duration::from_secs(3);

/// What a worker gets to exit after it was told that it may leave: it writes a snapshot.
const LEAVE_GRACE: Duration = Duration::from_secs(10);

/// A deaf worker has its verdict by then.
const GREETED_WITHIN: Duration = Duration::from_secs(3);

/// A worker whose link broke has usually died, and that is about to be seen.
const RECONNECT_AFTER: Duration = Duration::from_millis(100);

/// Something happened to worker `id`. Does what follows, without waiting for any of it.
pub(crate) fn apply(daemon: &Rc<Daemon>, id: &str, event: &Event) {
    let actions = {
        let mut table = daemon.workers.table.borrow_mut();
        let Some(worker) = table.get_mut(id) else { return };
        let before = worker.state.clone();
        let (state, actions) = next(before.clone(), event);
        if state != before {
            debug!(id, ?event, ?state, "worker");
        }
        worker.state = state;
        actions
    };
    for action in actions {
        carry_out(daemon, id, action);
    }
}

fn carry_out(daemon: &Rc<Daemon>, id: &str, action: Action) {
    match action {
        Action::Go => {
            let scope = daemon.scopes.as_ref().map(|scopes| scopes.name(id));
            send(daemon, id, ToWorker::Go { scope });
            claim::serve_waiting(daemon);
        }
        Action::Resume(session_id) => send(daemon, id, ToWorker::Resume { session_id }),
        Action::MayLeave => send(daemon, id, ToWorker::MayLeave {}),
        Action::End(reason) => send(daemon, id, ToWorker::End { reason }),
        Action::StartGrace => {
            tokio::task::spawn_local(grace(daemon.clone(), id.to_owned()));
        }
        Action::Kill => kill(daemon, id),
        Action::Reconnect => {
            tokio::task::spawn_local(reconnect(daemon.clone(), id.to_owned()));
        }
        Action::Bury(death) => {
            tokio::task::spawn_local(life::bury(daemon.clone(), id.to_owned(), death));
        }
        Action::Reconcile => daemon.look(),
    }
}

/// Sends over the worker's link. A link that is full or broken is that of a deaf worker, and its
/// next unanswered hand-over or grace ends it.
pub(super) fn send(daemon: &Daemon, id: &str, message: ToWorker) {
    if daemon.parking.stage() == Stage::Given {
        // Our successor commands it, and hears the same from it.
        return;
    }
    let table = daemon.workers.table.borrow();
    let sent = table.get(id).and_then(|worker| worker.link.as_ref()).is_some_and(|link: &Link| link.send(message));
    if !sent {
        warn!(id, "a message to this worker was lost");
    }
}

pub(super) fn kill(daemon: &Daemon, id: &str) {
    if let Some(worker) = daemon.workers.table.borrow().get(id) {
        // Fails when it is gone, which is what is wanted.
        let _ = worker.identity.signal(Signal::KILL);
    }
}

/// Notes for the next worker of a session that this one's end is wanted, before it is killed: it
/// could not say so itself.
pub(super) fn note_end(daemon: &Daemon, id: &str, reason: EndReason) {
    let Some(session) = daemon.workers.state(id).and_then(|state| state.session()) else { return };
    let word = match reason {
        EndReason::Stopped => "stopped",
        EndReason::Closed => "closed",
    };
    let path = daemon.layout.session(session).ended();
    if let Err(cause) = shared::fs::replace(&path, word.as_bytes(), shared::fs::Sync::Lazy) {
        warn!(id, "cannot write {}: {cause}", path.display());
    }
}

async fn grace(daemon: Rc<Daemon>, id: String) {
    let leaving = matches!(daemon.workers.state(&id), Some(super::State::Leaving { .. }));
    tokio::time::sleep(if leaving { LEAVE_GRACE } else { CLOSE_GRACE }).await;
    if matches!(daemon.workers.state(&id), Some(super::State::Ending { .. })) {
        note_end(&daemon, &id, EndReason::Closed);
    }
    apply(&daemon, &id, &Event::GraceOver);
}

async fn reconnect(daemon: Rc<Daemon>, id: String) {
    tokio::time::sleep(RECONNECT_AFTER).await;
    let is_alone = daemon.workers.table.borrow().get(&id).is_some_and(|worker| worker.link.is_none());
    if is_alone && daemon.parking.stage() != Stage::Given {
        greet::converse(daemon, id).await;
    }
}

/// Connects to all workers again, after a successor had spoken to them that came to nothing: our
/// links to them are stale, whether we have seen their end or not. Returns when they are there.
pub(crate) async fn greet_again(daemon: &Rc<Daemon>) {
    let mut stale = Vec::new();
    for (id, worker) in daemon.workers.table.borrow_mut().iter_mut() {
        if matches!(worker.state, super::State::Spare | super::State::Serving { .. }) {
            worker.link = None;
            stale.push(id.clone());
        }
    }
    for id in &stale {
        tokio::task::spawn_local(greet::converse(daemon.clone(), id.clone()));
    }
    let is_alone = |id: &String| {
        let table = daemon.workers.table.borrow();
        let of_use = |state: &super::State| matches!(state, super::State::Spare | super::State::Serving { .. });
        table.get(id).is_some_and(|worker| worker.link.is_none() && of_use(&worker.state))
    };
    let greeted = async {
        while stale.iter().any(is_alone) {
            // There is no event that only this may consume.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(GREETED_WITHIN, greeted).await.is_err() {
        warn!("a worker did not come back to us");
    }
}

/// Tells a worker to end.
pub(super) fn ask_to_end(daemon: &Rc<Daemon>, id: &str, reason: EndReason) {
    apply(daemon, id, &Event::EndAsked(reason));
}
