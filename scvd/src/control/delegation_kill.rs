//! `delegation_kill`: ends one run through its owner, so that its call ends as cancelled; the
//! supervisor itself kills only orphans.

use std::rc::Rc;
use std::time::Duration;

use shared::protocol::ErrorCode;
use shared::protocol::control::{Delegations, Status};
use shared::registry::Delegation;
use tokio::time::{Instant, sleep, timeout_at};

use super::status::status;
use super::{Answer, Failure};
use crate::daemon::Daemon;
use crate::supervise::{self, Depth, records};

/// SIGTERM, 2 seconds, SIGKILL; and a little for the record to go.
const ENDED_WITHIN: Duration = Duration::from_secs(4);

/// A file has no event here that costs less than looking.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(super) async fn carry_out(daemon: &Rc<Daemon>, handle: Option<String>, orphans: bool) -> Result<Answer, Failure> {
    let mut killed = Vec::new();
    match handle {
        Some(handle) => {
            kill(daemon, &handle).await?;
            killed.push(handle);
        }
        None if !orphans => {
            return Err(Failure::new(ErrorCode::InvalidRequest, "name a handle, or set `orphans`"));
        }
        None => {}
    }
    if orphans {
        killed.extend(records(&daemon.layout).iter().filter(|r| r.is_orphan()).map(|r| r.handle.clone()));
        killed.extend(supervise::end_orphans(daemon, Depth::Marked).await);
    }
    let status = status(daemon);
    Ok(Status { delegations: Delegations { killed: Some(killed), ..status.delegations.clone() }, ..status }.into())
}

async fn kill(daemon: &Rc<Daemon>, handle: &str) -> Result<(), Failure> {
    let failure = |why: String| Failure::new(ErrorCode::DelegationError, why);
    let record = find(daemon, handle).ok_or_else(|| failure(format!("there is no run {handle}")))?;
    if record.is_orphan() {
        supervise::end_orphans(daemon, Depth::Marked).await;
        return Ok(());
    }
    let Some(worker) = daemon.workers.of_process(&record.owner) else {
        let owner = record.owner.pid;
        return Err(failure(format!("run {handle} belongs to process {owner}, which this supervisor did not start")));
    };
    supervise::kill_run(daemon, &worker, handle);
    let deadline = Instant::now() + ENDED_WITHIN;
    let gone = async {
        while find(daemon, handle).is_some() {
            sleep(LOOK_EVERY).await;
        }
    };
    timeout_at(deadline, gone).await.map_err(|_| failure(format!("run {handle} does not end")))
}

fn find(daemon: &Daemon, handle: &str) -> Option<Delegation> {
    records(&daemon.layout).into_iter().find(|record| record.handle == handle)
}
