//! The old supervisor's side: starts the new one, gives it everything, leaves or stays.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use shared::link::{self, LinkReader, LinkWriter};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::{info, warn};

use super::{Parked, Stage, ToPredecessor, ToSuccessor, VERSION, failure};
use crate::daemon::{Daemon, End};
use crate::notify;
use crate::supervise::{self, Depth};

/// A program that can take over says so within this; it takes milliseconds.
const PREPARED_WITHIN: Duration = Duration::from_secs(5);

/// A client's answer is on its way for so long at most, unless it does not read: one that waits
/// for a worker that does not start waits 10 s.
const PARKED_WITHIN: Duration = Duration::from_secs(12);

/// Workers that start or end have done so by then. One that takes longer is adopted as it is.
const DRAINED_WITHIN: Duration = Duration::from_secs(4);

/// The new one greets all workers at once; a deaf one costs it 2 s.
const UP_WITHIN: Duration = Duration::from_secs(5);

/// The new one reads what it is given at once.
const READ_WITHIN: Duration = Duration::from_secs(2);

/// A client's wish to restart.
#[derive(Debug)]
pub(crate) struct Restart {
    /// Whether idle workers are renewed, of whatever release.
    pub(crate) when_idle: bool,
    /// Told why nothing came of it. After a restart nobody is there to tell.
    pub(crate) failed: oneshot::Sender<String>,
}

/// Nothing came of it; the old supervisor is in charge as before.
#[derive(Debug)]
pub(crate) enum GivenUp {
    /// The successor did not come up.
    Failed(String),
    /// Something ended the supervisor meanwhile.
    Ended(End),
}

/// Hands over to a new supervisor. After `Ok` the caller leaves and touches nothing.
pub(crate) async fn restart(
    daemon: &Rc<Daemon>,
    when_idle: bool,
    requests: &mut mpsc::UnboundedReceiver<End>,
    also: &mut Vec<oneshot::Sender<String>>,
) -> Result<(), GivenUp> {
    let path = daemon.own_path.display();
    let failed = |why: String| GivenUp::Failed(format!("the new scvd ({path}) did not take over: {why}"));
    info!("restarting: starting {path}");
    let mut heir = Successor::start(daemon).map_err(|cause| failed(format!("cannot start it: {cause}")))?;
    let done = match heir.prepared().await {
        Ok(()) => {
            daemon.parking.enter(Stage::Parking);
            match quiet(daemon, requests, also).await {
                Some(end) => Err(Err(end)),
                None => heir.give(daemon, when_idle).await.map_err(Ok),
            }
        }
        Err(why) => Err(Ok(why)),
    };
    let given_up = match done {
        Ok(()) => {
            notify::main_pid(heir.child.id());
            return Ok(());
        }
        Err(Ok(why)) => failed(failure::of(&mut heir.child, &why).await),
        Err(Err(end)) => {
            failure::of(&mut heir.child, "").await;
            GivenUp::Ended(end)
        }
    };
    daemon.family.forget(heir.pid);
    if let Err(cause) = daemon.lock.reclaim() {
        warn!("cannot write {}: {cause}", daemon.layout.lock().display());
    }
    if daemon.parking.stage() == Stage::Given {
        daemon.parking.enter(Stage::Draining);
        supervise::greet_again(daemon).await;
    }
    daemon.parking.enter(Stage::Open);
    // What a program left that is no scvd.
    supervise::end_orphans(daemon, Depth::Family).await;
    daemon.look();
    Err(given_up)
}

/// Waits until no client is served and no worker is on its way; what ended the supervisor first.
async fn quiet(
    daemon: &Rc<Daemon>,
    requests: &mut mpsc::UnboundedReceiver<End>,
    also: &mut Vec<oneshot::Sender<String>>,
) -> Option<End> {
    let parked = async {
        while daemon.connections.now() > daemon.parking.count() {
            tokio::select! {
                () = daemon.parking.moved() => {}
                Some(end) = requests.recv() => match end {
                    // It gets what this restart gets.
                    End::Restart(other) => also.push(other.failed),
                    // There is something to do.
                    End::Idle => {}
                    end => return Some(end),
                },
            }
        }
        None
    };
    match timeout(PARKED_WITHIN, parked).await {
        Ok(Some(end)) => return Some(end),
        Ok(None) => {}
        Err(_) => warn!("a client that does not read its answer is left behind"),
    }
    daemon.parking.enter(Stage::Draining);
    if timeout(DRAINED_WITHIN, supervise::settled(daemon)).await.is_err() {
        warn!("a worker that neither starts nor ends is left to the successor");
    }
    daemon.parking.enter(Stage::Given);
    None
}

struct Successor {
    child: Child,
    pid: i32,
    reader: LinkReader,
    writer: LinkWriter,
}

impl Successor {
    fn start(daemon: &Daemon) -> io::Result<Self> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&daemon.own_path);
        command.arg("--scv-home").arg(daemon.layout.home()).arg("--take-over");
        command.arg("--guarded-by").arg(daemon.strangers.to_argument());
        if daemon.on_demand {
            command.arg("--on-demand");
        }
        // They name this process, and the service manager means whoever is in charge.
        command.env_remove("WATCHDOG_PID").env_remove("LISTEN_PID").env_remove("LISTEN_FDS");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).process_group(0);
        let child = daemon.family.spawn(&mut command)?;
        let pid = child.id().map_or(0, u32::cast_signed);
        let (reader, writer) = link::split(UnixStream::from_std(ours)?);
        Ok(Self { child, pid, reader, writer })
    }

    async fn prepared(&mut self) -> Result<(), String> {
        match self.said(PREPARED_WITHIN).await? {
            ToPredecessor::Prepared { version: VERSION, .. } => Ok(()),
            ToPredecessor::Prepared { release, .. } => Err(format!(
                "release {release} cannot take over from release {}; `scv stop` and `scv start` change to it",
                shared::RELEASE
            )),
            ToPredecessor::Up {} | ToPredecessor::Unknown => Err("it is no scvd that can take over".into()),
        }
    }

    /// What it says next.
    async fn said(&mut self, within: Duration) -> Result<ToPredecessor, String> {
        match timeout(within, self.reader.next::<ToPredecessor>(|_| None)).await {
            Ok(Ok(Some((said, _)))) => Ok(said),
            Ok(Ok(None)) => Err("it closed the connection".into()),
            Ok(Err(cause)) => Err(format!("what it said is no message: {cause}")),
            Err(_) => Err(format!("it was not up within {} s", within.as_secs())),
        }
    }

    /// Gives it everything and waits until it is up.
    async fn give(&mut self, daemon: &Daemon, when_idle: bool) -> Result<(), String> {
        let given = timeout(READ_WITHIN, self.give_all(daemon, when_idle)).await;
        given.map_err(|_| "it did not read what it was given".to_owned())?.map_err(|cause| cause.to_string())?;
        match self.said(UP_WITHIN).await? {
            ToPredecessor::Up {} => {}
            other => return Err(format!("it said {other:?} instead of being up")),
        }
        // It lives without this as well: our end tells it the same.
        let _ = timeout(READ_WITHIN, self.writer.send(&ToSuccessor::Yours {})).await;
        Ok(())
    }

    async fn give_all(&mut self, daemon: &Daemon, when_idle: bool) -> io::Result<()> {
        let lock = ToSuccessor::Lock {
            pid: std::process::id().cast_signed(),
            nofile: daemon.descriptors.original,
            orphans_ended: daemon.orphans_ended.get(),
            when_idle,
            len: 0,
        };
        self.hand(&lock, daemon.lock.as_fd(), &[]).await?;
        if let Some(listener) = daemon.door.listener() {
            self.hand(
                &ToSuccessor::Listener { is_inherited: daemon.door.is_inherited(), len: 0 },
                listener.as_fd(),
                &[],
            )
            .await?;
        }
        for Parked { stream, greeting, watch, restart, bytes } in daemon.parking.take() {
            let client = ToSuccessor::Client { greeting, watch, restart, len: bytes.len() };
            match self.hand(&client, stream.as_fd(), &bytes).await {
                // Nothing of it was written.
                Err(cause) if cause.kind() == io::ErrorKind::InvalidData => warn!("a client is left behind: {cause}"),
                other => other?,
            }
        }
        self.writer.send(&ToSuccessor::Begin {}).await
    }

    async fn hand(&mut self, message: &ToSuccessor, socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
        self.writer.hand_over(message, socket, bytes).await
    }
}
