//! How much of the supervisor connections may take: their number, and the bytes of lines that
//! have not ended.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use shared::protocol::limits::UNFINISHED_BYTES;
use tokio::sync::Notify;

use crate::daemon::Daemon;

/// The connections that are open.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Cell<usize>,
    unfinished: Cell<usize>,
    pub(super) closed: Notify,
}

impl Connections {
    /// How many there are.
    pub(crate) fn now(&self) -> usize {
        self.open.get()
    }
}

/// One connection's share of the load; given back when it is dropped.
pub(super) struct Share {
    daemon: Rc<Daemon>,
    unfinished: usize,
}

impl Share {
    /// A place for one more connection; none if there is none.
    pub(super) fn take(daemon: &Rc<Daemon>) -> Option<Self> {
        let open = &daemon.connections.open;
        if open.get() >= daemon.descriptors.max_connections(daemon.settings.borrow().max_sessions) {
            return None;
        }
        open.set(open.get() + 1);
        Some(Self { daemon: daemon.clone(), unfinished: 0 })
    }

    /// This connection has `bytes` of a line that has not ended. False if all connections
    /// together have more than they may.
    pub(super) fn unfinished(&mut self, bytes: usize) -> bool {
        let total = &self.daemon.connections.unfinished;
        total.set(total.get() - self.unfinished + bytes);
        self.unfinished = bytes;
        total.get() <= UNFINISHED_BYTES
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let connections = &self.daemon.connections;
        connections.open.set(connections.open.get() - 1);
        connections.unfinished.set(connections.unfinished.get() - self.unfinished);
        connections.closed.notify_one();
        self.daemon.parking.left();
        if self.daemon.on_demand {
            // From here on it may be idle.
            self.daemon.idle_since.set(None);
            self.daemon.look();
        }
    }
}

/// Whether there is still nothing to do, once whoever had connected by now was heard. For the
/// moment after the socket was closed.
pub(crate) async fn is_idle(daemon: &Daemon) -> bool {
    // A connection that waited in the queue is accepted as soon as this task yields.
    tokio::time::sleep(Duration::from_millis(20)).await;
    daemon.connections.now() == 0 && daemon.workers.sessions().is_empty()
}
