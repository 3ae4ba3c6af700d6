//! The life of one worker: spawned, watched, buried.

use std::io;
use std::process::Stdio;
use std::rc::Rc;
use std::time::{Duration, Instant};

use shared::fs::{self, Sync};
use shared::process::{Exit, Identity};
use shared::protocol::server::Reply;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdout};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::act::apply;
use super::state::{Death, Event, State};
use super::table::{Worker, WorkerId};
use super::tally::Who;
use super::{Depth, claim, exits, greet, orphans, records};
use crate::daemon::Daemon;

/// From spawn to `ready`. It takes a millisecond; a machine that swaps takes longer.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// What the kernel kills with when memory runs out.
const SIGKILL: i32 = shared::process::Signal::KILL.as_raw();

/// The process of a worker, as far as we can wait for it.
pub(super) enum Process {
    /// Our child: the kernel tells us how it ended.
    Ours(Child),
    /// An earlier supervisor's: we see that it ends, and are told how where somebody tells.
    Adopted,
}

/// Collects orphans that came up to us, each by its own pid, as they exit.
pub(crate) async fn reap_forever(daemon: Rc<Daemon>) {
    let Err(cause) = daemon.family.tend().await;
    error!("orphans are no longer collected: {cause}");
}

/// Starts a worker. What goes wrong is counted, and told to whoever waits for one.
pub(crate) fn spawn(daemon: &Rc<Daemon>) {
    let id = fresh_id();
    match start(daemon, &id) {
        Ok((child, identity, stdout)) => {
            enter(daemon, id.clone(), identity, true);
            tokio::task::spawn_local(watch(daemon.clone(), id.clone(), Process::Ours(child)));
            tokio::task::spawn_local(wait_until_ready(daemon.clone(), id, stdout));
        }
        Err(cause) => {
            error!("cannot start a worker: {cause}");
            remove_bundle(daemon, &id);
            daemon.workers.tally.borrow_mut().died(Who::Spare, Instant::now(), cause.to_string());
            claim::disappoint(daemon, &format!("cannot start {}: {cause}", daemon.program.path()));
            daemon.look();
        }
    }
}

fn fresh_id() -> WorkerId {
    let id = shared::protocol::ids::fresh();
    // The last group of a UUID v7 is random.
    id[id.len() - 12..].to_owned()
}

fn start(daemon: &Daemon, id: &str) -> io::Result<(Child, Identity, Option<ChildStdout>)> {
    let bundle = daemon.layout.worker(id);
    fs::private_dir(bundle.path())?;
    let intent = serde_json::json!({ "supervisor": Identity::current()? });
    // Before the process: a bundle without `worker.json` is one that may have a worker.
    fs::replace(&bundle.intent(), intent.to_string().as_bytes(), Sync::Lazy)?;
    let mut command = daemon.program.command(&daemon.layout, id, daemon.descriptors.original);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = daemon.family.spawn(&mut command)?;
    let pid = child.id().ok_or_else(|| io::Error::other("it exited at once"))?;
    let stdout = child.stdout.take();
    Ok((child, Identity::of(pid.cast_signed())?, stdout))
}

/// Puts a worker into the table.
pub(super) fn enter(daemon: &Daemon, id: WorkerId, identity: Identity, ours: bool) {
    let worker = Worker {
        state: State::Starting,
        identity,
        ours,
        release: String::new(),
        link_version: 0,
        link: None,
        links: 0,
        moving: Vec::new(),
        entry: None,
        exit: Exit::default(),
        complaint: None,
        is_deaf: false,
        gone: watch::Sender::new(()),
    };
    daemon.workers.table.borrow_mut().insert(id, worker);
}

async fn wait_until_ready(daemon: Rc<Daemon>, id: WorkerId, stdout: Option<ChildStdout>) {
    let line = async {
        let mut line = [0; 6];
        let Some(mut stdout) = stdout else { return false };
        stdout.read_exact(&mut line).await.is_ok() && line == *b"ready\n"
    };
    if tokio::time::timeout(READY_WITHIN, line).await.unwrap_or(false) {
        greet::converse(daemon, id).await;
    } else {
        apply(&daemon, &id, &Event::Deaf);
    }
}

/// Waits for a worker's end, whoever its parent is.
pub(super) async fn watch(daemon: Rc<Daemon>, id: WorkerId, process: Process) {
    let Some(identity) = daemon.workers.table.borrow().get(&id).map(|worker| worker.identity.clone()) else { return };
    let exit = match process {
        Process::Ours(mut child) => {
            let status = child.wait().await;
            daemon.family.forget(identity.pid);
            status.map_or_else(|_| Exit::default(), Exit::from)
        }
        Process::Adopted => match exits::of_adopted(&daemon.layout, &id, &identity).await {
            Ok(exit) => exit,
            Err(cause) => {
                error!(id, "cannot watch this worker: {cause}");
                std::future::pending().await
            }
        },
    };
    if let Some(worker) = daemon.workers.table.borrow_mut().get_mut(&id) {
        worker.exit = exit;
    }
    apply(&daemon, &id, &Event::Exited { clean: exit.success() });
}

/// Ends what a dead worker left, and forgets it.
pub(super) async fn bury(daemon: Rc<Daemon>, id: WorkerId, death: Death) {
    let (session, exit, identity, ours, complaint) = {
        let mut table = daemon.workers.table.borrow_mut();
        let Some(worker) = table.get_mut(&id) else { return };
        // Hand-overs that wait for it are told now, and go to another worker.
        worker.link = None;
        let complaint = worker.complaint.take();
        (worker.state.session(), worker.exit, worker.identity.clone(), worker.ours, complaint)
    };
    match death {
        Death::Wished | Death::Unasked => info!(id, ?session, "worker ended: {exit}"),
        Death::Crash => warn!(id, ?session, "worker died: {exit}"),
    }
    // What another's child leaves comes up to whatever reaper that one had; only its marks tell.
    let where_to_look = if ours { Depth::Family } else { Depth::Marked };
    let mut how = exit.to_string();
    if let Some(scopes) = &daemon.scopes {
        // While its cgroup is there, which is as long as anything lives in it.
        let short_of_memory = exit.signal == Some(SIGKILL) && scopes.cgroup(&id).oom_kills() > Some(0);
        if short_of_memory {
            how += "; memory had run out in its scope";
        }
        scopes.end(&id).await;
    }
    orphans::end_orphans(&daemon, where_to_look).await;
    records::remove_of(&daemon.layout, &identity);
    remove_bundle(&daemon, &id);
    let worker = daemon.workers.table.borrow_mut().remove(&id);

    if death != Death::Wished {
        let who = session.map_or(Who::Spare, Who::Session);
        let why = match death {
            Death::Unasked => format!("its worker left unasked ({exit}); the supervisor's log has its words"),
            Death::Wished | Death::Crash => format!("its worker died ({exit})"),
        };
        daemon.workers.tally.borrow_mut().died(who, Instant::now(), why);
    }
    if let Some(session) = session {
        daemon.hub.gone(session);
        if death == Death::Crash {
            daemon.hub.crashed(Reply::SessionCrashed {
                session_id: session,
                reason: format!("its worker died ({how})"),
                signal: exit.signal,
                exit_code: exit.code,
                resumable: true,
            });
        }
    } else if death == Death::Crash {
        let why = complaint.unwrap_or_else(|| {
            let program = daemon.program.path();
            format!("{program} died at its start ({exit}); the supervisor's log has its words")
        });
        claim::disappoint(&daemon, &why);
    }
    // Only now: whoever waits for its end may start it again.
    drop(worker);
    daemon.look();
}

pub(super) fn remove_bundle(daemon: &Daemon, id: &str) {
    let bundle = daemon.layout.worker(id);
    match std::fs::remove_dir_all(bundle.path()) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            error!("cannot remove {}: {cause}", bundle.path().display());
        }
        _ => {}
    }
}
