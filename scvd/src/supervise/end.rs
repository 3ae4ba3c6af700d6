//! Ends workers on purpose.

use std::rc::Rc;
use std::time::Duration;

use shared::link::EndReason;
use shared::protocol::SessionId;
use tracing::warn;

use super::act::{ask_to_end, kill, note_end};
use super::claim::{Unavailable, gone};
use super::state::{Event, State};
use super::table::WorkerId;
use crate::daemon::Daemon;

/// SIGKILL and what follows take milliseconds; a process that hangs in the kernel is not waited for.
const KILL_WITHIN: Duration = Duration::from_millis(500);

/// Ends one worker that has no session and is not needed.
pub(crate) fn end_a_spare(daemon: &Rc<Daemon>) {
    let spare = daemon.workers.table.borrow().iter().find(|(_, w)| w.state == State::Spare).map(|(id, _)| id.clone());
    if let Some(id) = spare {
        super::apply(daemon, &id, &Event::WantsToLeave);
    }
}

/// Closes a live session; returns when its worker is gone, killed if it has to be. False if
/// the session is not live.
pub(crate) async fn end_session(daemon: &Rc<Daemon>, session: SessionId) -> Result<bool, Unavailable> {
    let Some(id) = daemon.workers.of_session(session) else { return Ok(false) };
    ask_to_end(daemon, &id, EndReason::Closed);
    gone(daemon, &id).await?;
    Ok(true)
}

/// Ends all workers: asks, waits up to `grace`, kills. Returns when they are gone.
pub(crate) async fn end_all(daemon: &Rc<Daemon>, reason: EndReason, grace: Duration) {
    let ids: Vec<WorkerId> = daemon.workers.table.borrow().keys().cloned().collect();
    for id in &ids {
        ask_to_end(daemon, id, reason);
    }
    let all_gone = async {
        for id in &ids {
            let _ = gone(daemon, id).await;
        }
    };
    if tokio::time::timeout(grace, all_gone).await.is_ok() {
        return;
    }
    let left: Vec<WorkerId> = daemon.workers.table.borrow().keys().cloned().collect();
    warn!(?left, "killing workers that do not end");
    for id in &left {
        note_end(daemon, id, reason);
        kill(daemon, id);
    }
    let all_gone = async {
        for id in &left {
            let _ = gone(daemon, id).await;
        }
    };
    let _ = tokio::time::timeout(KILL_WITHIN, all_gone).await;
}

/// Returns when no worker starts or ends.
pub(crate) async fn settled(daemon: &Daemon) {
    while !daemon.workers.are_settled() {
        // There is no event that only this may consume.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Has a worker end one of its runs, as cancelled.
pub(crate) fn kill_run(daemon: &Daemon, worker: &str, handle: &str) {
    super::act::send(daemon, worker, shared::link::ToWorker::Kill { handle: handle.to_owned() });
}
