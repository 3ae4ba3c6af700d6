//! Clients that wait while one supervisor hands over to the next: each stops between two of its
//! messages, and goes on here if nothing came of it.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};

use super::Greeted;

/// How far a restart is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Nobody restarts.
    Open,
    /// No client is accepted, and those that are here stop after their answer.
    Parking,
    /// No worker is started either.
    Draining,
    /// The successor commands the workers: nothing is said to them.
    Given,
}

/// A client that waits.
#[derive(Debug)]
pub(crate) struct Parked {
    /// The connection.
    pub(crate) stream: Rc<UnixStream>,
    /// What it said in `initialize`.
    pub(crate) greeting: Option<Greeted>,
    /// Its request to watch.
    pub(crate) watch: Option<String>,
    /// Its request to restart.
    pub(crate) restart: Option<String>,
    /// What was read of it and not answered.
    pub(crate) bytes: Vec<u8>,
}

/// A client that an earlier supervisor has parked.
#[derive(Debug)]
pub(crate) struct Inherited {
    /// Its connection, until it is served.
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) greeting: Option<Greeted>,
    pub(crate) watch: Option<String>,
    pub(crate) restart: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

/// Where clients wait.
#[derive(Debug)]
pub(crate) struct Parking {
    stage: watch::Sender<Stage>,
    parked: RefCell<Vec<Parked>>,
    moved: Notify,
}

impl Default for Parking {
    fn default() -> Self {
        Self { stage: watch::Sender::new(Stage::Open), parked: RefCell::default(), moved: Notify::new() }
    }
}

impl Parking {
    /// How far a restart is.
    pub(crate) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Returns once clients have to stop. Cancel-safe.
    pub(crate) async fn begun(&self) {
        self.until(|stage| stage != Stage::Open).await;
    }

    /// Returns once nobody restarts. Cancel-safe.
    pub(crate) async fn open(&self) {
        self.until(|stage| stage == Stage::Open).await;
    }

    async fn until(&self, holds: impl Fn(Stage) -> bool) {
        // The sender lives as long as we do, so this cannot fail.
        let _ = self.stage.subscribe().wait_for(|stage| holds(*stage)).await;
    }

    /// Waits until nobody restarts any more; the successor may take the client over meanwhile, and
    /// then this does not return.
    pub(crate) async fn park(&self, client: Parked) {
        self.parked.borrow_mut().push(client);
        self.moved.notify_one();
        self.open().await;
    }

    /// A client has left.
    pub(crate) fn left(&self) {
        self.moved.notify_one();
    }

    /// Changes the stage. Whoever is parked goes on by itself when that is [`Stage::Open`].
    pub(super) fn enter(&self, stage: Stage) {
        if stage == Stage::Open {
            self.parked.borrow_mut().clear();
        }
        self.stage.send_replace(stage);
    }

    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.parked.borrow().len()
    }

    /// Returns when a client was parked or has left.
    pub(super) async fn moved(&self) {
        self.moved.notified().await;
    }

    /// Those that wait; they stay parked.
    pub(super) fn take(&self) -> Vec<Parked> {
        std::mem::take(&mut self.parked.borrow_mut())
    }
}
