//! Boot, service and shutdown of the supervisor, as named steps, and what its tasks share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use shared::fs::{self, Sync};
use shared::layout::Layout;
use shared::link::EndReason;
use shared::process::{self, Family};
use shared::protocol::SessionId;
use tokio::runtime;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::LocalSet;
use tracing::{error, info, warn};

use crate::control::Hub;
use crate::error::{BootError, EXIT_HANDED_OVER, EXIT_STOPPED, with_causes};
use crate::index::Index;
use crate::limits::Descriptors;
use crate::listener::{Connections, Door};
use crate::lock::ServerLock;
use crate::scopes::Scopes;
use crate::settings::Settings;
use crate::signals::Signals;
use crate::supervise::{self, Depth, Program, Strangers, Workers};
use crate::takeover::{self, Estate, GivenUp, Heir, Parking, Restart};
use crate::{listener, notify, reconcile};

/// What workers get to end their runs when everything stops; then they are killed.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// What a client that asked for the stop gets to read its answer.
const FAREWELL: Duration = Duration::from_millis(500);

/// What the tasks of the supervisor share. One thread, so each value is whole between two awaits.
pub(crate) struct Daemon {
    /// The instance.
    pub(crate) layout: Layout,
    /// The settings in force.
    pub(crate) settings: RefCell<Settings>,
    /// Why the configuration on disk is not the one in force.
    pub(crate) config_error: RefCell<Option<String>>,
    /// Whether it was started by a client and leaves when there is nothing to do.
    pub(crate) on_demand: bool,
    /// Our direct children.
    pub(crate) family: Family,
    /// Who has to be left alone when orphans are ended.
    pub(crate) strangers: Strangers,
    /// The limit on descriptors.
    pub(crate) descriptors: Descriptors,
    /// The program of workers.
    pub(crate) program: Program,
    /// Scopes for them, where systemd's user manager runs us.
    pub(crate) scopes: Option<Scopes>,
    /// The workers.
    pub(crate) workers: Workers,
    /// The sessions on the disk.
    pub(crate) index: Index,
    /// Sessions that are being removed.
    pub(crate) removing: RefCell<BTreeSet<SessionId>>,
    /// The socket.
    pub(crate) door: Door,
    /// The connections that are open.
    pub(crate) connections: Connections,
    /// What watchers are told.
    pub(crate) hub: Hub,
    /// Wakes the reconciler.
    pub(crate) changed: Notify,
    /// Since when there is neither a client nor a session.
    pub(crate) idle_since: Cell<Option<Instant>>,
    /// Processes that dead workers left and that were ended.
    pub(crate) orphans_ended: Cell<u64>,
    /// When it started, in milliseconds since 1970.
    pub(crate) started_unix_ms: u64,
    /// Clients that wait while we hand over to a successor.
    pub(crate) parking: Parking,
    /// Before we are in charge: why we must not be.
    pub(crate) reasons_to_stay_out: RefCell<Option<Vec<String>>>,
    /// Where this program was started from: its successor is what stands there then.
    pub(crate) own_path: PathBuf,
    /// What makes it the only one of its home.
    pub(crate) lock: ServerLock,
    stopping: Cell<bool>,
    ends: mpsc::UnboundedSender<End>,
}

/// Why the supervisor ends.
#[derive(Debug)]
pub(crate) enum End {
    /// SIGTERM: the workers go on.
    Leave,
    /// SIGINT, or the terminal was closed: everything ends.
    Interrupt,
    /// A client asked for it: everything ends, and stays down until it is started again.
    Stop(Farewell),
    /// A client asked for a successor.
    Restart(Restart),
    /// There was nothing to do.
    Idle,
    /// The home was removed, or is another supervisor's now.
    Homeless,
}

/// Lets the client that asked for a stop have its answer.
#[derive(Debug)]
pub(crate) struct Farewell {
    /// Everything has ended.
    pub(crate) ended: oneshot::Sender<()>,
    /// The answer was written, or the connection is gone.
    pub(crate) said: oneshot::Receiver<()>,
}

impl Daemon {
    /// Whether new sessions are refused because everything ends.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Ends the supervisor, soon.
    pub(crate) fn end(&self, end: End) {
        // Nobody receives any more once it ends.
        let _ = self.ends.send(end);
    }

    /// Has the reconciler look now.
    pub(crate) fn look(&self) {
        self.changed.notify_one();
    }
}

/// How a supervisor is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// By a client: it leaves when there is nothing to do.
    pub(crate) on_demand: bool,
    /// By another supervisor, from which it takes over.
    pub(crate) take_over: bool,
}

/// Runs the supervisor until it is told to end.
pub(crate) fn run(layout: Layout, how: How, strangers: Strangers) -> Result<ExitCode, BootError> {
    process::set_name("scvd");
    let runtime =
        runtime::Builder::new_current_thread().enable_all().build().map_err(BootError::io("start the runtime"))?;
    let ended = LocalSet::new().block_on(&runtime, boot_and_serve(layout, how, strangers));
    // What still deletes trash goes on at the next start.
    runtime.shutdown_background();
    ended
}

async fn boot_and_serve(layout: Layout, how: How, strangers: Strangers) -> Result<ExitCode, BootError> {
    make_directories(&layout)?;
    let How { on_demand, take_over } = how;
    let own_path = own_path().map_err(BootError::io("tell where scvd is"))?;
    let own_lock = if take_over { None } else { Some(ServerLock::acquire(&layout)?) };
    let signals = Signals::catch().map_err(BootError::io("catch signals"))?;
    let mut descriptors = Descriptors::raise();
    process::become_subreaper().map_err(BootError::io("become the reaper of orphans"))?;
    let family = Family::new().map_err(BootError::io("read /proc"))?;
    let program = Program::find().map_err(BootError::io("find scv-worker beside scvd, in libexec/scv, or on PATH"))?;
    let scopes = Scopes::of_this_service(&layout);
    let (settings, config_error) = settings_of(&layout);
    let (lock, door, inheritance) = if let Some(lock) = own_lock {
        let door = match listener::inherited(&layout) {
            Some(listener) => Door::inherited(&layout, listener)?,
            None => Door::bind(&layout)?,
        };
        (lock, door, None)
    } else {
        if let Some(reason) = config_error {
            return Err(BootError::Config(reason));
        }
        let mut heir = Heir::connect().map_err(BootError::io("take over by standard input"))?;
        let mut estate = heir.receive().await.map_err(BootError::io("take over"))?;
        let lock =
            ServerLock::inherit(&layout, estate.lock.try_clone().map_err(BootError::io("keep the lock"))?, estate.pid)?;
        let door = match estate.listener.take() {
            Some(listener) => Door::taken_over(&layout, listener, estate.is_inherited)?,
            None => Door::bind(&layout)?,
        };
        descriptors.original = estate.nofile;
        (lock, door, Some((heir, estate)))
    };
    let (ends, requests) = mpsc::unbounded_channel();
    let daemon = Rc::new(Daemon {
        connections: Connections::default(),
        settings: RefCell::new(settings),
        config_error: RefCell::new(config_error),
        on_demand,
        family,
        strangers,
        descriptors,
        program,
        scopes,
        workers: Workers::default(),
        index: Index::of(&layout),
        removing: RefCell::default(),
        door,
        hub: Hub::default(),
        changed: Notify::new(),
        idle_since: Cell::new(None),
        orphans_ended: Cell::new(0),
        started_unix_ms: shared::clock::unix_ms(),
        parking: Parking::default(),
        reasons_to_stay_out: RefCell::new(inheritance.is_some().then(Vec::new)),
        own_path,
        lock,
        stopping: Cell::new(false),
        ends,
        layout,
    });
    tokio::task::spawn_local(supervise::reap_forever(daemon.clone()));
    supervise::adopt(&daemon).await;
    if let Some(scopes) = &daemon.scopes {
        scopes.end_strays(|worker| daemon.workers.has(worker)).await;
    }
    supervise::end_orphans(&daemon, Depth::Marked).await;
    let inherited = match inheritance {
        Some((heir, estate)) => {
            if let Some(reason) = daemon.reasons_to_stay_out.borrow().iter().flatten().next() {
                return Err(BootError::Workers(reason.clone()));
            }
            heir.succeed().await;
            supervise::pass_verdicts(&daemon);
            Some(estate)
        }
        None => None,
    };
    if on_demand && inherited.is_none() && daemon.layout.stopped().exists() {
        // `scv stop` came while nobody listened: during a cold start, or between a crash and this
        // restart. It looks for a socket again after it wrote the mark, so one of us sees the other.
        stop_everything(&daemon).await;
        daemon.lock.sign_off("stopped before it was up");
        daemon.door.close();
        return Err(BootError::Stopped);
    }
    let when_idle = inherited.as_ref().is_some_and(|estate| estate.when_idle);
    supervise::renew(&daemon, when_idle);
    if let Some(estate) = inherited {
        go_on(&daemon, estate);
    }
    reconcile::once(&daemon);
    // `once` gave the time of the next look; the first round of `forever` finds it again.
    daemon.look();
    notify::ready();
    tokio::task::spawn_local(notify::watchdog());
    info!(version = shared::RELEASE, home = %daemon.layout.home().display(), "ready");
    Ok(serve(&daemon, signals, requests).await)
}

/// Goes on where the supervisor before us was.
fn go_on(daemon: &Rc<Daemon>, estate: Estate) {
    let Estate { orphans_ended, clients, .. } = estate;
    daemon.orphans_ended.set(daemon.orphans_ended.get() + orphans_ended);
    listener::resume(daemon, clients);
}

/// Where this program is, also after its file was replaced: the kernel says so behind the name.
fn own_path() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let name = path.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
    Ok(name.map_or_else(|| path.clone(), |name| Path::new(name).to_owned()))
}

fn make_directories(layout: &Layout) -> Result<(), BootError> {
    let state = layout.state();
    let make = || {
        fs::private_dir(&state)?;
        // It may have been made by hand, or by a release that was less strict.
        std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700))?;
        layout.create()?;
        fs::private_dir(&layout.trash())
    };
    make().map_err(BootError::io(format!("write to {}", state.display())))
}

fn settings_of(layout: &Layout) -> (Settings, Option<String>) {
    match Settings::load(layout) {
        Ok(settings) => (settings, None),
        Err(reason) => {
            error!("{reason}; the defaults are in force");
            (Settings::default(), Some(reason))
        }
    }
}

/// Serves until something ends it, then ends it in order.
async fn serve(daemon: &Rc<Daemon>, mut signals: Signals, mut requests: mpsc::UnboundedReceiver<End>) -> ExitCode {
    let mut exit = ExitCode::SUCCESS;
    tokio::task::spawn_local(listener::accept_forever(daemon.clone()));
    tokio::task::spawn_local(reconcile::forever(daemon.clone()));
    loop {
        let end = tokio::select! {
            Some(end) = requests.recv() => end,
            end = signals.next(daemon) => end,
        };
        match end {
            End::Leave => {
                notify::stopping();
                daemon.lock.sign_off("told to leave by SIGTERM; the workers went on");
                break;
            }
            End::Interrupt => {
                stop_everything(daemon).await;
                daemon.lock.sign_off("interrupted");
                break;
            }
            End::Homeless => {
                error!("{} is not at its path any more: ending everything", daemon.layout.lock().display());
                stop_everything(daemon).await;
                break;
            }
            End::Stop(farewell) => {
                keep_down(daemon);
                stop_everything(daemon).await;
                daemon.lock.sign_off("stopped by a client");
                say_farewell(farewell, &mut requests).await;
                let Some(scopes) = &daemon.scopes else { break };
                // A client that comes now would have the manager start us again.
                if let Err(cause) = scopes.stop_service().await {
                    error!("{}", with_causes(&cause));
                }
                exit = ExitCode::from(EXIT_STOPPED);
                break;
            }
            End::Restart(Restart { when_idle, failed }) => {
                let mut asked = vec![failed];
                match takeover::restart(daemon, when_idle, &mut requests, &mut asked).await {
                    Ok(()) => {
                        info!("the successor is in charge");
                        // Socket and lock are its own now.
                        return ExitCode::from(EXIT_HANDED_OVER);
                    }
                    Err(GivenUp::Failed(why)) => {
                        error!("{why}");
                        for failed in asked {
                            // Whoever asked may be gone.
                            let _ = failed.send(format!("{why}; the running one stays in charge"));
                        }
                    }
                    Err(GivenUp::Ended(end)) => daemon.end(end),
                }
            }
            End::Idle => {
                // In this order: a client that comes now finds no socket and starts a new
                // supervisor; one that came before is still served by this one.
                daemon.door.close();
                if !listener::is_idle(daemon).await {
                    daemon.look();
                    continue;
                }
                stop_everything(daemon).await;
                daemon.lock.sign_off("left: there was nothing to do");
                break;
            }
        }
    }
    daemon.door.close();
    info!("ended");
    exit
}

/// Only `scv start` and `scv run` start anything after this.
fn keep_down(daemon: &Daemon) {
    if let Err(cause) = fs::replace(&daemon.layout.stopped(), b"", Sync::Durable) {
        error!("cannot write {}: {cause}", daemon.layout.stopped().display());
    }
    if let Err(cause) = fs::remove(&daemon.layout.kept()) {
        error!("cannot remove {}: {cause}", daemon.layout.kept().display());
    }
}

/// Ends every worker and everything that they started; returns when all of it is gone.
async fn stop_everything(daemon: &Rc<Daemon>) {
    daemon.stopping.set(true);
    notify::stopping();
    info!("stopping");
    supervise::end_all(daemon, EndReason::Stopped, STOP_GRACE).await;
    if let Some(scopes) = &daemon.scopes {
        scopes.end_slice().await;
    }
    supervise::end_orphans(daemon, Depth::Family).await;
}

async fn say_farewell(first: Farewell, requests: &mut mpsc::UnboundedReceiver<End>) {
    let mut said = vec![first];
    while let Ok(end) = requests.try_recv() {
        if let End::Stop(farewell) = end {
            said.push(farewell);
        }
    }
    let answers: Vec<_> = said
        .into_iter()
        .map(|farewell| {
            let _ = farewell.ended.send(());
            farewell.said
        })
        .collect();
    let all = async {
        for answer in answers {
            let _ = answer.await;
        }
    };
    if tokio::time::timeout(FAREWELL, all).await.is_err() {
        warn!("the client that asked for the stop does not read");
    }
}
