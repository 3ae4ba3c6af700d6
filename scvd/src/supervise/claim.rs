//! Finds a worker for a session: the one that has it, a spare, or the next that starts.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use shared::protocol::SessionId;
use tokio::sync::oneshot;
use tracing::error;

use super::act::apply;
use super::state::{Event, State};
use super::table::{WorkerId, Workers};
use super::tally::Who;
use crate::daemon::Daemon;

/// A worker is there in a millisecond. Whoever waits so long is told what is wrong.
const WORKER_WITHIN: Duration = Duration::from_secs(10);

/// A worker that ends is killed after its grace; this is longer than any.
const GONE_WITHIN: Duration = Duration::from_secs(15);

/// Why a session gets no worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unavailable {
    /// There are as many sessions as there may be.
    #[error("this supervisor has as many live sessions as it may ({0}); close one, or raise supervisor.max_sessions")]
    Limit(usize),
    /// Everything ends.
    #[error("the supervisor is stopping")]
    Stopping,
    /// It did not work.
    #[error("{0}")]
    Failed(String),
}

type Told = Result<WorkerId, Unavailable>;

/// Sessions that wait for a worker, first first, and who wants to know.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    order: VecDeque<SessionId>,
    told: BTreeMap<SessionId, Vec<oneshot::Sender<Told>>>,
}

impl Waiting {
    pub(super) fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.order.iter().copied()
    }

    fn join(&mut self, session: SessionId) -> oneshot::Receiver<Told> {
        let (tell, told) = oneshot::channel();
        if !self.told.contains_key(&session) {
            self.order.push_back(session);
        }
        self.told.entry(session).or_default().push(tell);
        told
    }

    /// The first session that somebody still waits for.
    fn pop(&mut self) -> Option<(SessionId, Vec<oneshot::Sender<Told>>)> {
        while let Some(session) = self.order.pop_front() {
            let mut tell = self.told.remove(&session).unwrap_or_default();
            tell.retain(|tell| !tell.is_closed());
            if !tell.is_empty() {
                return Some((session, tell));
            }
        }
        None
    }

    fn drop_closed(&mut self) {
        let Self { order, told } = self;
        told.retain(|_, tell| {
            tell.retain(|tell| !tell.is_closed());
            !tell.is_empty()
        });
        order.retain(|session| told.contains_key(session));
    }
}

/// What is to be done for a session that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Route {
    /// This worker has it.
    Live(WorkerId),
    /// This worker had it, and has to be gone first.
    Departing(WorkerId),
    /// It becomes this spare's.
    Spare(WorkerId),
    /// It waits for a worker.
    Wait,
}

fn route(workers: &Workers, session: SessionId) -> Route {
    let table = workers.table.borrow();
    if let Some((id, worker)) = table.iter().find(|(_, worker)| worker.state.session() == Some(session)) {
        return match worker.state {
            State::Serving { .. } => Route::Live(id.clone()),
            State::Leaving { .. } | State::Ending { .. } | State::Dead { .. } | State::Starting | State::Spare => {
                Route::Departing(id.clone())
            }
        };
    }
    match table.iter().find(|(_, worker)| worker.state == State::Spare && worker.link.is_some()) {
        Some((id, _)) => Route::Spare(id.clone()),
        None => Route::Wait,
    }
}

/// A worker for `session`, which counts as handed to it from then on ([`Event::Assigned`]).
pub(crate) async fn claim(daemon: &Rc<Daemon>, session: SessionId) -> Told {
    daemon.workers.tally.borrow_mut().asked(Who::Session(session));
    loop {
        if daemon.is_stopping() {
            return Err(Unavailable::Stopping);
        }
        arrived(daemon, session).await;
        match route(&daemon.workers, session) {
            Route::Live(id) => {
                apply(daemon, &id, &Event::Assigned { session });
                return Ok(id);
            }
            Route::Departing(id) => gone(daemon, &id).await?,
            Route::Spare(id) => {
                admit(daemon, session)?;
                apply(daemon, &id, &Event::Assigned { session });
                return Ok(id);
            }
            Route::Wait => {
                admit(daemon, session)?;
                return wait(daemon, session).await;
            }
        }
    }
}

/// Waits until a session that was given away is with its next worker.
async fn arrived(daemon: &Daemon, session: SessionId) {
    let transit = daemon.workers.in_transit.borrow().get(&session).map(tokio::sync::watch::Sender::subscribe);
    if let Some(mut transit) = transit {
        // Nothing is ever sent: this is its end.
        while transit.changed().await.is_ok() {}
    }
}

fn admit(daemon: &Daemon, session: SessionId) -> Result<(), Unavailable> {
    let max = daemon.settings.borrow().max_sessions;
    let mut live = daemon.workers.sessions();
    live.insert(session);
    if live.len() > max { Err(Unavailable::Limit(max)) } else { Ok(()) }
}

/// A worker that has no session.
pub(super) fn spare(daemon: &Daemon) -> Option<WorkerId> {
    match route(&daemon.workers, SessionId::new()) {
        Route::Spare(id) => Some(id),
        Route::Live(_) | Route::Departing(_) | Route::Wait => None,
    }
}

pub(super) async fn wait(daemon: &Rc<Daemon>, session: SessionId) -> Told {
    let mut told = daemon.workers.waiting.borrow_mut().join(session);
    daemon.look();
    let failed = |why: &str| Unavailable::Failed(why.to_owned());
    if let Ok(told) = tokio::time::timeout(WORKER_WITHIN, &mut told).await {
        return told.unwrap_or_else(|_| Err(failed("no worker could be started")));
    }
    told.close();
    daemon.workers.waiting.borrow_mut().drop_closed();
    // It may have come at this very moment.
    told.try_recv().unwrap_or_else(|_| Err(failed("no worker was ready within 10 seconds")))
}

/// Waits until a worker is gone with everything that it left.
pub(super) async fn gone(daemon: &Daemon, id: &str) -> Result<(), Unavailable> {
    let Some(mut gone) = daemon.workers.table.borrow().get(id).map(|worker| worker.gone.subscribe()) else {
        return Ok(());
    };
    let closed = async { while gone.changed().await.is_ok() {} };
    tokio::time::timeout(GONE_WITHIN, closed)
        .await
        .map_err(|_| Unavailable::Failed("the session's worker does not end".into()))
}

/// Gives a worker that is ready to the session that has waited longest.
pub(super) fn serve_waiting(daemon: &Rc<Daemon>) {
    loop {
        let Some(spare) = spare(daemon) else { return };
        let Some((session, tell)) = daemon.workers.waiting.borrow_mut().pop() else { return };
        for tell in tell {
            apply(daemon, &spare, &Event::Assigned { session });
            if tell.send(Ok(spare.clone())).is_err() {
                error!(%session, "a worker was given to nobody");
                apply(daemon, &spare, &Event::Refused);
            }
        }
    }
}

/// A worker did not start: the session that has waited longest is told, so that a program that
/// cannot start is tried once for each that asks, and not for ever.
pub(super) fn disappoint(daemon: &Daemon, why: &str) {
    let waiting = daemon.workers.waiting.borrow_mut().pop();
    for tell in waiting.map(|(_, tell)| tell).unwrap_or_default() {
        // Whoever gave up meanwhile need not hear it.
        let _ = tell.send(Err(Unavailable::Failed(why.to_owned())));
    }
}

/// Starts a session that has work, without a client.
pub(crate) fn resume(daemon: &Rc<Daemon>, session: SessionId) {
    let daemon = daemon.clone();
    tokio::task::spawn_local(async move {
        match route(&daemon.workers, session) {
            Route::Spare(id) => return apply(&daemon, &id, &Event::Resumed { session }),
            // A client was faster. Where its worker is about to go, that end brings the next look.
            Route::Live(_) | Route::Departing(_) => return,
            Route::Wait => {}
        }
        match wait(&daemon, session).await {
            // `wait` counts a hand-over; there is none, so the worker is told and owes nothing.
            Ok(id) => {
                super::act::send(&daemon, &id, shared::link::ToWorker::Resume { session_id: session });
                apply(&daemon, &id, &Event::Taken);
            }
            Err(cause) => {
                error!(%session, "cannot start this session: {cause}");
                daemon.workers.tally.borrow_mut().died(
                    Who::Session(session),
                    std::time::Instant::now(),
                    cause.to_string(),
                );
                daemon.look();
            }
        }
    });
}
