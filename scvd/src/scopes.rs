//! One transient scope a worker, where systemd's user manager runs the supervisor.
//!
//! No worker is in the supervisor's own cgroup, so its end, by whatever hand, ends no session; and
//! the end of a worker is that of its scope: whatever it started, however it hid, is in there.
//! Without a manager there are no scopes, and this module is not used.

use std::cell::RefCell;
use std::time::Duration;

use shared::layout::Layout;
use shared::process::Cgroup;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};
use zbus::Connection;
use zbus::Variant;

/// A worker that is not in its scope by then does not serve.
const MOVED_WITHIN: Duration = Duration::from_secs(2);

/// The manager answers a call in milliseconds.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// From SIGKILL to an empty cgroup; what hangs in the kernel is not waited for.
const EMPTY_WITHIN: Duration = Duration::from_secs(2);

/// What the manager gives a scope to end when it is asked to stop it.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The manager answers before it has moved a process; no event tells when it has.
const LOOK_EVERY: Duration = Duration::from_micros(500);

/// Why a worker has no scope, or a unit did not change.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScopeError {
    /// The manager does not do it.
    #[error("systemd's user manager refused {what}")]
    Manager {
        /// What it was asked for.
        what: String,
        /// What it says.
        #[source]
        source: zbus::Error,
    },
    /// It does not answer.
    #[error("systemd's user manager did not answer {what} within {within:?}")]
    Silent {
        /// What it was asked for.
        what: String,
        /// How long it was waited for.
        within: Duration,
    },
    /// The process was not moved.
    #[error("systemd did not move it into {scope} within {within:?}")]
    NotMoved {
        /// Where it should be.
        scope: String,
        /// How long it was waited for.
        within: Duration,
    },
}

/// The units of one instance, seen from its service.
#[derive(Debug)]
pub(crate) struct Scopes {
    instance: String,
    /// Where the manager puts the slice of our workers.
    slice: Cgroup,
    /// Made at the first use, and again when the bus was started anew.
    manager: RefCell<Option<Connection>>,
}

impl Scopes {
    /// Those of this instance, if this process is its unit: the kernel tells, no variable does.
    pub(crate) fn of_this_service(layout: &Layout) -> Option<Self> {
        let own = Cgroup::of(std::process::id().cast_signed()).ok().flatten()?;
        let instance = layout.instance();
        if own.name() != service(&instance) {
            return None;
        }
        let mut above = own.parent()?;
        // `app.slice`, unless somebody put the service elsewhere; slices are below the manager.
        while above.name().rsplit_once('.').is_some_and(|(_, kind)| kind == "slice") {
            above = above.parent()?;
        }
        let slice = above.child("scv.slice").child(&slice(&instance));
        Some(Self { instance, slice, manager: RefCell::default() })
    }

    /// The name of our unit.
    pub(crate) fn service(&self) -> String {
        service(&self.instance)
    }

    /// The name of a worker's scope.
    pub(crate) fn name(&self, worker: &str) -> String {
        format!("scv-{}-{worker}.scope", self.instance)
    }

    /// The cgroup of a worker's scope.
    pub(crate) fn cgroup(&self, worker: &str) -> Cgroup {
        self.slice.child(&self.name(worker))
    }

    /// Moves a worker into its scope, unless it is there. It has to start nothing before.
    pub(crate) async fn place(&self, worker: &str, pid: i32, memory_max: Option<u64>) -> Result<(), ScopeError> {
        let scope = self.name(worker);
        let is_there = || Cgroup::of(pid).ok().flatten().is_some_and(|cgroup| cgroup == self.cgroup(worker));
        if is_there() {
            return Ok(());
        }
        let usec = u64::try_from(STOP_TIMEOUT.as_micros()).unwrap_or(u64::MAX);
        let mut properties = vec![
            ("Description", Variant::from(format!("SCV worker {worker}"))),
            ("PIDs", Variant::from(vec![u32::try_from(pid).unwrap_or_default()])),
            ("Slice", Variant::from(slice(&self.instance))),
            ("Delegate", Variant::from(true)),
            ("CollectMode", Variant::from("inactive-or-failed")),
            ("TimeoutStopUSec", Variant::from(usec)),
            // A child that took too much is killed alone; the session tells.
            ("OOMPolicy", Variant::from("continue")),
        ];
        properties.extend(memory_max.map(|bytes| ("MemoryMax", Variant::from(bytes))));
        let none: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
        let started = self.ask("StartTransientUnit", &(&*scope, "fail", &properties, &none)).await;
        if let Err(refused) = started {
            // Managers before 253 do not know a scope's `OOMPolicy`.
            debug!("{refused}; once more without OOMPolicy");
            properties.retain(|(name, _)| *name != "OOMPolicy");
            let again = self.ask("StartTransientUnit", &(&*scope, "fail", &properties, &none)).await;
            // A call whose answer was lost with the bus has done its work, and is refused now.
            if !is_there() {
                again?;
            }
        }
        let deadline = Instant::now() + MOVED_WITHIN;
        while !is_there() {
            if Instant::now() > deadline {
                return Err(ScopeError::NotMoved { scope, within: MOVED_WITHIN });
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Ends everything in a dead worker's scope; the unit goes with its last process.
    pub(crate) async fn end(&self, worker: &str) {
        end(&self.cgroup(worker)).await;
    }

    /// Ends the scopes of workers that are not there any more.
    pub(crate) async fn end_strays(&self, is_a_worker: impl Fn(&str) -> bool) {
        for scope in self.slice.children() {
            let worker = scope.strip_prefix(&format!("scv-{}-", self.instance)).and_then(|w| w.strip_suffix(".scope"));
            if worker.is_none_or(|worker| !is_a_worker(worker)) {
                info!(scope, "ending what is left of a dead worker");
                end(&self.slice.child(&scope)).await;
            }
        }
    }

    /// Ends everything in the slice.
    pub(crate) async fn end_slice(&self) {
        end(&self.slice).await;
        let slice = slice(&self.instance);
        if let Err(cause) = self.ask("StopUnit", &(&*slice, "replace")).await {
            warn!("{}", crate::error::with_causes(&cause));
        }
    }

    /// Has the manager stop the socket, and with it the service, which is this process.
    pub(crate) async fn stop_service(&self) -> Result<(), ScopeError> {
        self.ask("StopUnit", &(&*socket(&self.instance), "replace")).await
    }

    /// Has the manager bind the socket again, and start the service again, which is this process.
    pub(crate) async fn restart_socket(&self) -> Result<(), ScopeError> {
        self.ask("RestartUnit", &(&*socket(&self.instance), "replace")).await
    }

    async fn ask<B>(&self, verb: &str, arguments: &B) -> Result<(), ScopeError>
    where
        B: serde::ser::Serialize + zbus::zvariant::DynamicType,
    {
        let call = async {
            let kept = self.manager.borrow().clone();
            if let Some(manager) = kept {
                match call(&manager, verb, arguments).await {
                    Err(gone) if is_gone(&gone) => debug!("the bus has gone: {gone}"),
                    other => return other,
                }
            }
            let manager = Connection::session().await?;
            self.manager.replace(Some(manager.clone()));
            call(&manager, verb, arguments).await
        };
        let told = timeout(ANSWERED_WITHIN, call).await;
        if !matches!(told, Ok(Ok(()))) {
            // One that answers no more may be half dead; the next call makes its own.
            self.manager.take();
        }
        match told {
            Ok(Ok(())) => Ok(()),
            Ok(Err(source)) => Err(ScopeError::Manager { what: verb.to_owned(), source }),
            Err(_) => Err(ScopeError::Silent { what: verb.to_owned(), within: ANSWERED_WITHIN }),
        }
    }
}

async fn call<B>(manager: &Connection, verb: &str, arguments: &B) -> zbus::Result<()>
where
    B: serde::ser::Serialize + zbus::zvariant::DynamicType,
{
    let to = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager");
    manager.call_method(Some(to.0), to.1, Some(to.2), verb, arguments).await.map(drop)
}

/// Whether a call failed since nobody is at the other end, and not by its answer.
fn is_gone(error: &zbus::Error) -> bool {
    matches!(error, zbus::Error::InputOutput(_))
}

async fn end(cgroup: &Cgroup) {
    if !cgroup.is_populated() {
        return;
    }
    if let Err(cause) = cgroup.kill() {
        // Gone meanwhile, or a kernel before 5.14: the other nets end what was in it.
        debug!(name = cgroup.name(), "cannot kill a cgroup: {cause}");
        return;
    }
    if !cgroup.emptied(EMPTY_WITHIN).await {
        warn!(name = cgroup.name(), "processes survive SIGKILL; they are left");
    }
}

fn service(instance: &str) -> String {
    format!("scvd-{instance}.service")
}

fn socket(instance: &str) -> String {
    format!("scvd-{instance}.socket")
}

fn slice(instance: &str) -> String {
    format!("scv-{instance}.slice")
}
