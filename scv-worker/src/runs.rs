//! The runs of one worker: every program that its session starts, from start to end.
//!
//! Whoever started a run holds it and ends it; this knows which ones there are, so that one can
//! be ended from outside, and all when the session goes.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use shared::process::{self, End, Ended, Family, Run, RunEnd, Signal, Start, Tag};
use shared::protocol::SessionId;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Whoever holds a run has this long, beyond the grace, to see that it was killed.
const OWNER_REACTS: Duration = Duration::from_secs(1);

/// The key of a client; no child gets it.
const API_KEY: &str = "SCV_API_KEY";

/// Whose runs they are.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    /// The instance.
    pub instance: String,
    /// The session.
    pub session: SessionId,
    /// How deep the session is delegated.
    pub depth: u32,
    /// The worker's own `SCV_PARENT`, where it runs delegated.
    pub parent: Option<String>,
}

/// A program to run.
#[derive(Debug)]
pub(crate) struct Launch {
    /// From [`Runs::handle`], or reserved with a record.
    pub handle: String,
    /// The program, absolute.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Where it works.
    pub cwd: PathBuf,
    /// Its environment; [`Runs::environment`] or made from it.
    pub env: BTreeMap<String, String>,
    /// How deep its processes are delegated.
    pub depth: u32,
    /// Its standard input.
    pub stdin: Stdio,
    /// Its standard output.
    pub stdout: Stdio,
    /// Its standard error.
    pub stderr: Stdio,
}

/// The runs of this worker. A cheap handle.
#[derive(Clone, Debug)]
pub(crate) struct Runs(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    family: Family,
    seat: Seat,
    environment: BTreeMap<String, String>,
    active: RefCell<HashMap<String, Active>>,
    /// Told whenever a run goes.
    gone: Notify,
}

#[derive(Debug)]
struct Active {
    leader: i32,
    kill: CancellationToken,
}

impl Runs {
    /// No run yet. `environment` is what children get; see [`environment_of_children`].
    pub(crate) fn new(family: Family, seat: Seat, environment: BTreeMap<String, String>) -> Self {
        Self(Rc::new(Inner { family, seat, environment, active: RefCell::default(), gone: Notify::new() }))
    }

    /// What children get, but for the tags.
    pub(crate) fn environment(&self) -> &BTreeMap<String, String> {
        &self.0.environment
    }

    /// The session.
    pub(crate) fn session(&self) -> SessionId {
        self.0.seat.session
    }

    /// How deep the session is delegated.
    pub(crate) fn depth(&self) -> u32 {
        self.0.seat.depth
    }

    /// The handles of what runs, sorted.
    #[cfg(test)]
    pub(crate) fn handles(&self) -> Vec<String> {
        let mut handles: Vec<_> = self.0.active.borrow().keys().cloned().collect();
        handles.sort();
        handles
    }

    /// A handle `<name>-<6 hex>` for a run that has no record on disk; no running one has its digits.
    pub(crate) fn handle(&self, name: &str) -> String {
        loop {
            let handle = process::fresh_handle(name);
            let digits = &handle[name.len()..];
            if !self.0.active.borrow().keys().any(|running| running.ends_with(digits)) {
                return handle;
            }
        }
    }

    /// Starts a run. Whoever gets it has to end it when [`Running::killed`] says so.
    pub(crate) fn start(&self, launch: Launch) -> io::Result<Running> {
        let Seat { instance, session, parent, .. } = &self.0.seat;
        let tag = Tag {
            instance: instance.clone(),
            session: *session,
            handle: launch.handle.clone(),
            depth: launch.depth,
            inherited: parent.clone(),
        };
        let run = Run::start(
            &self.0.family,
            Start {
                program: launch.program.into(),
                args: launch.args,
                cwd: launch.cwd,
                env: launch.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
                stdin: launch.stdin,
                stdout: launch.stdout,
                stderr: launch.stderr,
                tag,
            },
        )?;
        let kill = CancellationToken::new();
        let active = Active { leader: run.pid(), kill: kill.clone() };
        self.0.active.borrow_mut().insert(launch.handle.clone(), active);
        Ok(Running { run, kill, listed: Listed { runs: self.0.clone(), handle: launch.handle } })
    }

    /// Has a run ended as cancelled, and returns once it has. `false` if there is none.
    pub(crate) async fn kill(&self, handle: &str) -> bool {
        let Some(kill) = self.0.active.borrow().get(handle).map(|active| active.kill.clone()) else {
            return false;
        };
        kill.cancel();
        self.without(|active| !active.contains_key(handle), process::GRACE).await;
        true
    }

    /// Ends every run as cancelled, then whatever else came up to this process. Names the latter.
    pub(crate) async fn end_all(&self, grace: Duration) -> Vec<Ended> {
        for active in self.0.active.borrow().values() {
            active.kill.cancel();
        }
        self.without(HashMap::is_empty, grace).await;
        let family = &self.0.family;
        family.abandoned_are_gone(OWNER_REACTS).await;
        family.end_adopted(|id| !family.is_of_a_run(id), Duration::ZERO).await
    }

    /// Waits until `gone` holds; after `grace`, what still runs of the killed ones gets SIGKILL.
    async fn without(&self, gone: impl Fn(&HashMap<String, Active>) -> bool, grace: Duration) {
        let all_gone = async {
            loop {
                let told = self.0.gone.notified();
                if gone(&self.0.active.borrow()) {
                    return;
                }
                told.await;
            }
        };
        if timeout(grace + OWNER_REACTS, all_gone).await.is_ok() {
            return;
        }
        // Nobody looked: the owner hangs. It will see the exit.
        for active in self.0.active.borrow().values().filter(|active| active.kill.is_cancelled()) {
            for id in process::tree(active.leader) {
                let _ = id.signal(Signal::KILL);
            }
        }
    }
}

/// A run that has not ended. Dropped, all of it gets SIGKILL at once.
#[derive(Debug)]
pub(crate) struct Running {
    run: Run,
    kill: CancellationToken,
    listed: Listed,
}

impl Running {
    /// Returned by [`Running::killed`]: somebody wants it ended as cancelled.
    pub(crate) fn killed(&self) -> CancellationToken {
        self.kill.clone()
    }

    /// Ends it; returns when nothing of it is left.
    pub(crate) async fn end(self, how: End) -> RunEnd {
        let end = self.run.end(how).await;
        drop(self.listed);
        end
    }
}

impl Deref for Running {
    type Target = Run;
    fn deref(&self) -> &Run {
        &self.run
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Run {
        &mut self.run
    }
}

/// Keeps a run in the list.
#[derive(Debug)]
struct Listed {
    runs: Rc<Inner>,
    handle: String,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.runs.active.borrow_mut().remove(&self.handle);
        self.runs.gone.notify_waiters();
    }
}

/// What children of a session inherit of its environment: no variable that a `*_key_env` of the
/// configuration names (`key_names`), not `SCV_API_KEY`, none whose value is a configured secret,
/// except those that `tools.pass_env` names.
pub(crate) fn environment_of_children<'a>(
    session: &BTreeMap<String, String>,
    key_names: &[String],
    secrets: impl IntoIterator<Item = &'a str>,
    pass_env: &[String],
) -> BTreeMap<String, String> {
    let secrets: Vec<&str> = secrets.into_iter().filter(|secret| !secret.is_empty()).collect();
    let is_secret = |name: &String, value: &String| {
        name == API_KEY || key_names.contains(name) || secrets.contains(&value.as_str())
    };
    session
        .iter()
        .filter(|(name, value)| pass_env.contains(name) || !is_secret(name, value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
pub(crate) mod tests;
