//! The worker that scvd starts: a spare until a session is handed to it, then that session's.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::Context as _;
use shared::fs;
use shared::layout::{Layout, WorkerDir};
use shared::link::{HandOver, SocketAddress, ToSupervisor, ToWorker};
use shared::process::{self, Cgroup, Family, Identity};
use shared::protocol::ErrorCode;
use shared::protocol::SessionId;
use shared::protocol::client::{self, Peer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use crate::link::{self, Link, LinkEvent};
use crate::session::connection::{Connection, Io};
use crate::session::{self, Ended, Input, Moved, Opening, Session, Staged};
use crate::signals;

/// A worker with neither a supervisor nor a session leaves after this.
const ALONE_AT_MOST: Duration = Duration::from_secs(5);

/// The clients of a session that was taken over come right behind it.
const JOINED_WITHIN: Duration = Duration::from_secs(5);

/// A worker that a client already waits for gets it at once; only one that gets none rehearses.
const REHEARSE_AFTER: Duration = Duration::from_millis(1);

/// Of the reason in the record of its end.
const MAX_WHY_BYTES: usize = 1000;

/// Runs the worker of bundle `id` to its end.
pub(crate) async fn run(layout: Layout, id: &str) -> anyhow::Result<()> {
    let bundle = layout.worker(id);
    let ended = serve(layout, &bundle).await;
    write_exit(&bundle, &ended);
    ended.map(drop)
}

/// How the session ended; none if there was none.
async fn serve(layout: Layout, bundle: &WorkerDir) -> anyhow::Result<Option<Ended>> {
    process::become_subreaper().context("cannot become the reaper of my children")?;
    process::set_name("scv-worker");
    let family = Family::new()?;
    let listener = listen(bundle).context("cannot listen for the supervisor")?;
    let (link, mut events) = link::serve(listener);
    say_ready()?;
    let tending = family.clone();
    tokio::task::spawn_local(async move { tending.tend().await });

    let Some((session, first)) = wait_for_session(&layout, bundle, &link, &mut events, &family).await else {
        return Ok(None);
    };
    let inputs = session.inputs();
    signals::end_the_session(inputs.clone()).context("cannot catch signals")?;
    for input in first {
        inputs.send(input).await.context("the session takes nothing")?;
    }
    tokio::task::spawn_local(pass_on(events, inputs, link));
    Ok(Some(session.run().await))
}

/// Binds the control socket, then says who listens: whoever reads `worker.json` can connect.
fn listen(bundle: &WorkerDir) -> io::Result<UnixListener> {
    fs::remove(&bundle.socket())?;
    let address = SocketAddress::of(&bundle.socket())?;
    let listener = UnixListener::bind(address.path())?;
    // Inside a 0700 directory; the mode is for those who look.
    std::fs::set_permissions(bundle.socket(), std::fs::Permissions::from_mode(0o600))?;
    fs::replace(&bundle.worker(), &serde_json::to_vec(&Identity::current()?)?, fs::Sync::Lazy)?;
    Ok(listener)
}

/// Tells whoever spawned us, then lets go of its pipe: nothing else goes to standard output.
fn say_ready() -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(b"ready\n")?;
    stdout.flush()?;
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stdout(&null)?)
}

/// A spare waits here.
async fn wait_for_session(
    layout: &Layout,
    bundle: &WorkerDir,
    link: &Link,
    events: &mut mpsc::Receiver<LinkEvent>,
    family: &Family,
) -> Option<(Session, Vec<Input>)> {
    let opening = |id| Opening {
        layout: layout.clone(),
        id,
        link: link.clone(),
        family: family.clone(),
        config_path: None,
        moved: None,
    };
    let mut rehearsal_is_due = false;
    let mut staged = None;
    loop {
        let patience = if rehearsal_is_due { REHEARSE_AFTER } else { ALONE_AT_MOST };
        let event = if link.is_up() && !rehearsal_is_due {
            events.recv().await
        } else if let Ok(event) = tokio::time::timeout(patience, events.recv()).await {
            event
        } else if rehearsal_is_due {
            rehearsal_is_due = false;
            session::rehearse(opening(SessionId::new()));
            // Without it the session makes its own.
            staged = Staged::make(bundle.session()).ok();
            continue;
        } else {
            None
        };
        let (session_id, hand_over) = match event? {
            LinkEvent::Message(ToWorker::Client { id, session_id, features, peer, .. }, Some(hand_over)) => {
                (session_id, Some((id, features, peer, hand_over)))
            }
            LinkEvent::Message(ToWorker::Resume { session_id }, _) => (session_id, None),
            LinkEvent::Message(ToWorker::Take { session_id, seq, next_client, clients, .. }, Some(given)) => {
                let moved = Some(Moved::of(given, seq, next_client));
                match session::open(Opening { moved, ..opening(session_id) }, None, None) {
                    Ok(mut session) => {
                        link.runs(session_id);
                        let joined = join_before(&mut session, clients, events);
                        if tokio::time::timeout(JOINED_WITHIN, joined).await.is_err() {
                            tracing::error!(%session_id, "not every client of a session came with it");
                        }
                        return Some((session, Vec::new()));
                    }
                    Err(error) => {
                        tracing::error!(%error, %session_id, "cannot take a session over");
                        return None;
                    }
                }
            }
            LinkEvent::Message(ToWorker::End { .. } | ToWorker::MayLeave {}, _) => return None,
            LinkEvent::Message(ToWorker::Go { scope }, _) => {
                keep_runs_in(family, scope.as_deref());
                rehearsal_is_due = true;
                continue;
            }
            LinkEvent::Up | LinkEvent::Down | LinkEvent::Message(_, _) => continue,
        };
        let opening = opening(session_id);
        let Some((id, features, peer, hand_over)) = hand_over else {
            match session::open(opening, None, None) {
                Ok(session) => {
                    link.runs(session_id);
                    return Some((session, Vec::new()));
                }
                Err(error) => {
                    tracing::error!(%error, %session_id, "cannot start a wanted session again");
                    return None;
                }
            }
        };
        let first = hand_over.bytes.split(|b| *b == b'\n').next().unwrap_or_default();
        let message = client::parse(first).ok();
        match session::open(opening, message.as_ref(), staged.take()) {
            Ok(session) => {
                link.runs(session_id);
                link.say(ToSupervisor::Taken { id });
                let input = connected(features, peer, hand_over)?;
                return Some((session, vec![input]));
            }
            // The supervisor tells the client, whose connection is good for another try, and ends us.
            Err(error) => {
                link.say(ToSupervisor::Refused { id, reason: error.to_string(), code: Some(error.code()) });
            }
        }
    }
}

/// Takes the clients that come with a session, before anything can happen in it.
async fn join_before(session: &mut Session, clients: usize, events: &mut mpsc::Receiver<LinkEvent>) {
    for _ in 0..clients {
        match events.recv().await {
            Some(LinkEvent::Message(ToWorker::Moved { client, .. }, Some(given))) => {
                if let Some(stream) = stream_of(given.socket) {
                    session.joined_before(*client, stream, given.bytes);
                }
            }
            // The supervisor died, and with it the clients that had not come.
            _ => return,
        }
    }
}

/// Gives each run a cgroup of its own, where one was delegated to this process and it is there.
fn keep_runs_in(family: &Family, scope: Option<&str>) {
    let Some(scope) = scope else { return };
    match Cgroup::of(std::process::id().cast_signed()) {
        Ok(Some(cgroup)) if cgroup.name() == scope => family.keep_runs_in(cgroup),
        Ok(cgroup) => tracing::error!(?cgroup, scope, "this worker is not in its scope; its runs have no cgroups"),
        Err(error) => tracing::error!(%error, scope, "cannot tell this worker's cgroup"),
    }
}

/// Takes what the supervisor says to a worker that has its session.
async fn pass_on(mut events: mpsc::Receiver<LinkEvent>, inputs: mpsc::Sender<Input>, link: Link) {
    while let Some(event) = events.recv().await {
        let input = match event {
            LinkEvent::Up => Input::SupervisorUp,
            LinkEvent::Message(ToWorker::Client { id, features, peer, .. }, Some(hand_over)) => {
                if inputs.is_closed() {
                    // The supervisor still has the connection, and says so on it.
                    let (reason, code) = ("the session is just ending; ask again".to_owned(), ErrorCode::Unavailable);
                    link.say(ToSupervisor::Refused { id, reason, code: Some(code) });
                    continue;
                }
                link.say(ToSupervisor::Taken { id });
                let Some(input) = connected(features, peer, hand_over) else { continue };
                input
            }
            LinkEvent::Message(ToWorker::Renew {}, _) => Input::Renew,
            LinkEvent::Message(ToWorker::Kill { handle }, _) => Input::Kill { handle },
            LinkEvent::Message(ToWorker::MayLeave {}, _) => Input::MayLeave,
            LinkEvent::Message(ToWorker::End { reason }, _) => Input::End(reason),
            LinkEvent::Down
            | LinkEvent::Message(
                ToWorker::Hello { .. }
                | ToWorker::Go { .. }
                | ToWorker::Resume { .. }
                | ToWorker::Client { .. }
                | ToWorker::Take { .. }
                | ToWorker::Moved { .. }
                | ToWorker::Unknown,
                _,
            ) => continue,
        };
        // Fails when the session ends; clients that come meanwhile have to hear of it.
        let _ = inputs.send(input).await;
    }
}

fn connected(features: Vec<String>, peer: Peer, hand_over: HandOver) -> Option<Input> {
    let stream = stream_of(hand_over.socket)?;
    Some(Input::Connected(Box::new(Connection { peer, features, io: Io::Socket(stream), first: hand_over.bytes })))
}

fn stream_of(socket: OwnedFd) -> Option<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(socket);
    match socket.set_nonblocking(true).and_then(|()| UnixStream::from_std(socket)) {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::warn!(%error, "cannot take a client's connection");
            None
        }
    }
}

/// How this worker ends, for a supervisor that is not its parent, or was not there.
fn write_exit(bundle: &WorkerDir, ended: &anyhow::Result<Option<Ended>>) {
    let (exit, why) = match ended {
        Ok(ended) => (0, ended.map_or_else(|| "no session".to_owned(), |ended| format!("{ended:?}").to_lowercase())),
        Err(error) => (1, format!("{error:#}")),
    };
    let record = serde_json::json!({ "code": exit, "why": shared::text::one_line(&why, MAX_WHY_BYTES) });
    if let Err(error) = fs::replace(&bundle.exit(), record.to_string().as_bytes(), fs::Sync::Lazy) {
        tracing::debug!(%error, "cannot write how this worker ended");
    }
}
