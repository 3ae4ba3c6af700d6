//! `delegations`: the delegated agents that run.

use shared::protocol::control::{Delegations, Status};
use shared::registry::Delegation;

use super::status::status;
use crate::daemon::Daemon;
use crate::supervise::records;

/// The status with the runs; with `all` also those whose owner is gone.
pub(super) fn delegations(daemon: &Daemon, all: bool) -> Status {
    let status = status(daemon);
    let records = records(&daemon.layout);
    let mut entries: Vec<_> = records.iter().map(Delegation::entry).filter(|entry| all || !entry.orphaned).collect();
    entries.sort_by_key(|entry| entry.started_unix_seconds);
    Status { delegations: Delegations { entries: Some(entries), ..status.delegations.clone() }, ..status }
}
