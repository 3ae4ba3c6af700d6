//! Offers a client to a worker and waits for what it says.

use std::rc::Rc;
use std::time::Duration;

use shared::link::ToWorker;

use super::act::apply;
use super::link::{Answer, Offer};
use super::state::{Event, State};
use crate::daemon::Daemon;
use crate::takeover::Stage;

/// A worker answers a hand-over at once; without an answer in this time the next one is tried.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// How an offer was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The worker said nothing in time; it may still take the client.
    Silent,
    /// The link ended first: most likely the worker died.
    LinkEnded,
}

/// Offers a client to the worker that was claimed for it. Without an answer the state machine has
/// been told.
pub(crate) async fn offer(daemon: &Rc<Daemon>, worker: &str, mut offer: Offer) -> Result<Answer, NoAnswer> {
    let id = daemon.workers.hand_overs.get() + 1;
    daemon.workers.hand_overs.set(id);
    if let ToWorker::Client { id: its_id, .. } = &mut offer.message {
        *its_id = id;
    }
    let answer = if daemon.parking.stage() == Stage::Given {
        None
    } else {
        let table = daemon.workers.table.borrow();
        table.get(worker).and_then(|worker| worker.link.as_ref()).and_then(|link| link.offer(id, offer))
    };
    let answered = match answer {
        Some(answer) => match tokio::time::timeout(ANSWER_WITHIN, answer).await {
            Ok(answer) => answer.map_err(|_| NoAnswer::LinkEnded),
            Err(_) => Err(NoAnswer::Silent),
        },
        None => Err(NoAnswer::LinkEnded),
    };
    if answered.is_err() {
        if let Some(link) = daemon.workers.table.borrow().get(worker).and_then(|worker| worker.link.as_ref()) {
            link.give_up(id);
        }
        apply(daemon, worker, &Event::Unanswered);
    }
    answered
}

/// Waits until a worker whose link has ended is seen to be dead; `false` if it lives on.
///
/// A dying process closes its sockets before it can be waited for, and a client that saw that
/// comes back faster than the news of the death.
pub(crate) async fn is_buried(daemon: &Daemon, worker: &str) -> bool {
    let gone = async {
        while daemon.workers.state(worker).is_some_and(|state| !matches!(state, State::Dead { .. })) {
            // There is no event that only this may consume.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(ANSWER_WITHIN, gone).await.is_ok()
}
