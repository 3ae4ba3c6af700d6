//! Renews workers: those of another release, or all of them, each when its session is idle.
//!
//! A session moves with its lock and its clients from the old worker through us to a spare of our
//! release. Nobody else can open it on the way, and what is here only passes through.

use std::rc::Rc;

use shared::link::{HandOver, RENEWS_SINCE, ToSupervisor, ToWorker};
use shared::protocol::SessionId;
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::act::{apply, send};
use super::claim;
use super::link::Given;
use super::state::{Event, State};
use super::table::{Worker, WorkerId};
use crate::daemon::Daemon;

/// Clients of one session that are on their way at once; the supervisor's limits on connections
/// and a session's own keep it far below.
const MAX_CLIENTS: usize = 4096;

/// Workers that die at their start before a session that was given away is left to whoever asks.
const TRIES: usize = 3;

/// Asks workers of another release, or with `of_ours_too` all, to make room for one of ours: those
/// without a session at once, the others when they are idle. How many were asked.
pub(crate) fn renew(daemon: &Rc<Daemon>, of_ours_too: bool) -> usize {
    let old: Vec<(WorkerId, State)> = {
        let table = daemon.workers.table.borrow();
        let is_old = |worker: &Worker| of_ours_too || worker.release != shared::RELEASE;
        let can = |worker: &Worker| worker.state == State::Spare || worker.link_version >= RENEWS_SINCE;
        table.iter().filter(|(_, w)| is_old(w) && can(w)).map(|(id, w)| (id.clone(), w.state.clone())).collect()
    };
    let mut asked = 0;
    for (id, state) in old {
        match state {
            State::Spare => apply(daemon, &id, &Event::WantsToLeave),
            State::Serving { .. } => send(daemon, &id, ToWorker::Renew {}),
            State::Starting | State::Leaving { .. } | State::Ending { .. } | State::Dead { .. } => continue,
        }
        asked += 1;
    }
    asked
}

/// A worker gives away what came `with` its message.
pub(super) fn heard(daemon: &Rc<Daemon>, id: &str, message: ToSupervisor, with: HandOver) {
    let HandOver { socket: descriptor, bytes } = with;
    let len = bytes.len();
    // Otherwise it was told to end meanwhile, and its session with it.
    let Some(State::Serving { session, .. }) = daemon.workers.state(id) else { return };
    let client = match message {
        ToSupervisor::Client { client, .. } => ToWorker::Moved { client, len },
        ToSupervisor::Unheard { features, peer, .. } => {
            ToWorker::Client { id: 0, session_id: session, features, peer, len }
        }
        ToSupervisor::Moved { seq, next_client, .. } => {
            let clients = moving_of(daemon, id);
            let message = ToWorker::Take { session_id: session, seq, next_client, clients, len };
            return moved(daemon, id, session, Given { message, descriptor, bytes });
        }
        _ => return,
    };
    if let Some(worker) = daemon.workers.table.borrow_mut().get_mut(id) {
        if worker.moving.len() < MAX_CLIENTS {
            worker.moving.push(Given { message: client, descriptor, bytes });
        } else {
            warn!(id, "a worker gives away more clients than it can have");
        }
    }
}

fn moving_of(daemon: &Daemon, id: &str) -> usize {
    let table = daemon.workers.table.borrow();
    let moving = table.get(id).map(|worker| worker.moving.as_slice()).unwrap_or_default();
    moving.iter().filter(|given| matches!(given.message, ToWorker::Moved { .. })).count()
}

fn moved(daemon: &Rc<Daemon>, id: &str, session: SessionId, take: Given) {
    let mut given = vec![take];
    if let Some(worker) = daemon.workers.table.borrow_mut().get_mut(id) {
        given.append(&mut worker.moving);
    }
    info!(id, %session, clients = given.len() - 1, "renewing the worker of an idle session");
    apply(daemon, id, &Event::Moved);
    if let Some(next) = claim::spare(daemon) {
        apply(daemon, &next, &Event::Given { session });
        give(daemon, &next, given);
    } else {
        // Whoever asks for the session now waits until it has arrived.
        daemon.workers.in_transit.borrow_mut().insert(session, watch::Sender::new(()));
        tokio::task::spawn_local(give_to_the_next(daemon.clone(), session, given));
    }
    daemon.hub.changed(session);
}

async fn give_to_the_next(daemon: Rc<Daemon>, session: SessionId, given: Vec<Given>) {
    let mut next = claim::wait(&daemon, session).await;
    for _ in 1..TRIES {
        if next.is_err() && !daemon.is_stopping() {
            next = claim::wait(&daemon, session).await;
        }
    }
    match next {
        Ok(next) => {
            give(&daemon, &next, given);
            // It was counted as a hand-over, and answers none.
            apply(&daemon, &next, &Event::Taken);
        }
        // Its clients see the end of their connections, and attach again.
        Err(cause) => error!(%session, "no worker for a session that was given away: {cause}"),
    }
    daemon.workers.in_transit.borrow_mut().remove(&session);
}

fn give(daemon: &Daemon, id: &str, given: Vec<Given>) {
    let table = daemon.workers.table.borrow();
    let sent = table.get(id).and_then(|worker| worker.link.as_ref()).is_some_and(|link| link.give(given));
    if !sent {
        error!(id, "a session was given to a worker that does not read");
    }
}
