//! A delegation on record: on disk before anything runs, gone when nothing runs any more.
//!
//! Whoever finds a record whose owner is dead knows what to end.

use std::cell::RefCell;
use std::io;
use std::path::Path;

use shared::fs::Sync;
use shared::registry::{Delegation, Delegations, Draft};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::runs::{Launch, Running, Runs};

/// A delegation on record; dropped when nothing of it runs any more.
pub(crate) struct Ticket {
    runs: Runs,
    registry: Delegations,
    record: RefCell<Delegation>,
    kill: watch::Sender<Option<CancellationToken>>,
}

impl Ticket {
    /// Puts a delegation of the session of `runs` on record, durably, before it has a process.
    pub(crate) fn new(
        runs: &Runs,
        registry: Delegations,
        agent: &str,
        cwd: &Path,
        conversation: Option<(String, u32)>,
    ) -> io::Result<Self> {
        let record = RefCell::new(registry.reserve(Draft {
            agent: agent.to_owned(),
            session: runs.session().to_string(),
            cwd: cwd.to_owned(),
            depth: runs.depth() + 1,
            conversation,
        })?);
        Ok(Self { runs: runs.clone(), registry, record, kill: watch::Sender::new(None) })
    }

    /// What its processes are started with.
    pub(crate) fn handle(&self) -> String {
        self.record.borrow().handle.clone()
    }

    /// How deep its processes are delegated.
    pub(crate) fn depth(&self) -> u32 {
        self.record.borrow().depth
    }

    /// Starts its program and adds the process to the record.
    pub(crate) fn start(&self, launch: Launch) -> io::Result<Running> {
        let running = self.runs.start(launch)?;
        self.kill.send_replace(Some(running.killed()));
        let mut record = self.record.borrow_mut();
        record.process = Some(running.identity().clone());
        // The record without it is on the disk: it names the owner, below whom the process is.
        if let Err(error) = self.registry.save(&record, Sync::Lazy) {
            tracing::warn!(%error, handle = record.handle, "cannot add the process to its record");
        }
        Ok(running)
    }

    /// Returns when somebody wants it stopped (`scv agents kill`).
    pub(crate) fn killed(&self) -> impl Future<Output = ()> + use<> {
        let mut kill = self.kill.subscribe();
        async move {
            let token = kill.wait_for(Option::is_some).await.ok().and_then(|token| token.clone());
            match token {
                Some(token) => token.cancelled_owned().await,
                // Nothing was started, so there is nothing to stop.
                None => std::future::pending().await,
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let record = self.record.borrow();
        if let Err(error) = self.registry.remove(&record.handle) {
            tracing::warn!(%error, handle = record.handle, "cannot remove a record");
        }
    }
}
