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

/// What a worker gets to exit after it was told that its session is closed, before it is killed.
pub(super) const CLOSE_GRACE: Duration = Duration::from_secs(3);

/// What a worker gets to exit after it was told that it may leave: it writes a snapshot.
const LEAVE_GRACE: Duration = Duration::from_secs(10);

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

async fn grace(daemon: Rc<Daemon>, id: String) {
    let leaving = matches!(daemon.workers.state(&id), Some(super::State::Leaving { .. }));
    tokio::time::sleep(if leaving { LEAVE_GRACE } else { CLOSE_GRACE }).await;
    apply(&daemon, &id, &Event::GraceOver);
}

async fn reconnect(daemon: Rc<Daemon>, id: String) {
    tokio::time::sleep(RECONNECT_AFTER).await;
    greet::converse(daemon, id).await;
}

/// Tells a worker to end.
pub(super) fn ask_to_end(daemon: &Rc<Daemon>, id: &str, reason: EndReason) {
    apply(daemon, id, &Event::EndAsked(reason));
}
