//! `watch`: what changes, for lists. Each watcher pulls: it knows the last revision that it was
//! told, and gets what changed since. So there is no backlog to grow, and one that lags gets
//! less often, and if it has to, the whole again.

mod changes;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use shared::protocol::server::Reply;
use shared::protocol::{ServerEvent, SessionId};
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{Instant, sleep_until};

use crate::daemon::Daemon;
use changes::{Changes, Since};

/// At most one change of an entry in this time.
const EVERY: Duration = Duration::from_millis(100);

/// What watchers are told.
#[derive(Debug)]
pub(crate) struct Hub {
    changes: RefCell<Changes>,
    rev: Sender<u64>,
}

impl Default for Hub {
    fn default() -> Self {
        Self { changes: RefCell::default(), rev: Sender::new(0) }
    }
}

impl Hub {
    /// A live session changed, or is new.
    pub(crate) fn changed(&self, session: SessionId) {
        self.note(|changes| changes.changed(session));
    }

    /// A session is no longer live.
    pub(crate) fn gone(&self, session: SessionId) {
        self.note(|changes| changes.gone(session));
    }

    /// A session's worker died.
    pub(crate) fn crashed(&self, reply: Reply) {
        self.note(|changes| changes.crashed(reply));
    }

    fn note(&self, change: impl FnOnce(&mut Changes) -> u64) {
        let rev = change(&mut self.changes.borrow_mut());
        self.rev.send_replace(rev);
    }
}

/// One connection that watches.
pub(crate) struct Watcher {
    daemon: Rc<Daemon>,
    request_id: String,
    rev: Receiver<u64>,
    told: Option<u64>,
    crashes_told: u64,
    not_before: Instant,
}

impl Watcher {
    /// A watcher that has been told nothing yet.
    pub(crate) fn new(daemon: Rc<Daemon>, request_id: String) -> Self {
        let rev = daemon.hub.rev.subscribe();
        let crashes_told = *rev.borrow();
        Self { daemon, request_id, rev, told: None, crashes_told, not_before: Instant::now() }
    }

    /// Its request.
    pub(crate) fn request_id(&self) -> &str {
        &self.request_id
    }

    /// The next thing to tell. Cancel-safe.
    pub(crate) async fn next(&mut self) -> ServerEvent {
        loop {
            let crash = self.daemon.hub.changes.borrow().crash_after(self.crashes_told);
            if let Some((rev, reply)) = crash {
                self.crashes_told = rev;
                return ServerEvent::Reply(reply);
            }
            let Some(told) = self.told else { return self.snapshot() };
            if *self.rev.borrow_and_update() > told {
                sleep_until(self.not_before).await;
                // A death comes before the list without the dead.
                if self.daemon.hub.changes.borrow().crash_after(self.crashes_told).is_some() {
                    continue;
                }
                self.not_before = Instant::now() + EVERY;
                if let Some(event) = self.changes_since(told) {
                    return event;
                }
                continue;
            }
            if self.rev.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn snapshot(&mut self) -> ServerEvent {
        let rev = *self.rev.borrow_and_update();
        self.told = Some(rev);
        self.not_before = Instant::now() + EVERY;
        let sessions = self.daemon.workers.entries().iter().map(to_value).collect();
        ServerEvent::Reply(Reply::WatchSnapshot { request_id: self.request_id.clone(), rev, sessions })
    }

    /// What changed; none if it was nothing that a list shows.
    fn changes_since(&mut self, told: u64) -> Option<ServerEvent> {
        let since = self.daemon.hub.changes.borrow().since(told);
        let Since::Changes { rev, set, gone } = since else { return Some(self.snapshot()) };
        self.told = Some(rev);
        let set: Vec<Value> =
            set.iter().filter_map(|id| self.daemon.workers.entry(*id)).map(|e| to_value(&e)).collect();
        let gone: Vec<String> = gone.iter().map(SessionId::to_string).collect();
        (!set.is_empty() || !gone.is_empty()).then_some(ServerEvent::Reply(Reply::WatchChanged { rev, set, gone }))
    }
}

fn to_value(entry: &shared::protocol::control::SessionEntry) -> Value {
    // Our own type with string keys: this cannot fail.
    serde_json::to_value(entry).unwrap_or_default()
}
