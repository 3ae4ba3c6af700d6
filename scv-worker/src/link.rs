//! The worker's side of its link to scvd: listens, so that a new supervisor can connect.
//!
//! One supervisor at a time; the newest connection wins. Nothing here decides anything.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;

use shared::link::{HandOver, LinkReader, LinkWriter, ToSupervisor, ToWorker, VERSION, split};
use shared::protocol::SessionId;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

/// Messages that wait for the supervisor; more are dropped, the next state line makes up for them.
const WAITING_MESSAGES: usize = 64;

/// What the worker hears.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// A supervisor connected.
    Up,
    /// The supervisor is gone.
    Down,
    /// It said something.
    Message(ToWorker, Option<HandOver>),
}

/// What goes out; with a descriptor and bytes where the message has them.
#[derive(Debug)]
struct Outgoing {
    message: ToSupervisor,
    with: Option<HandOver>,
    /// Told once it is written.
    written: Option<oneshot::Sender<()>>,
}

/// Where the worker speaks.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    out: mpsc::Sender<Outgoing>,
    session: Rc<Cell<Option<SessionId>>>,
    up: Rc<Cell<bool>>,
}

impl Link {
    /// Says `message` if a supervisor is there.
    pub(crate) fn say(&self, message: ToSupervisor) {
        // Full or without a supervisor: state lines are sent again when one connects.
        let _ = self.out.try_send(Outgoing { message, with: None, written: None });
    }

    /// Gives a descriptor away; fails if it cannot be written to the supervisor.
    pub(crate) async fn give(&self, message: ToSupervisor, descriptor: OwnedFd, bytes: Vec<u8>) -> io::Result<()> {
        let (written, is_written) = oneshot::channel();
        let with = Some(HandOver { socket: descriptor, bytes });
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.out.send(Outgoing { message, with, written: Some(written) }).await.map_err(|_| broken())?;
        is_written.await.map_err(|_| broken())
    }

    /// The session that later supervisors are greeted with.
    pub(crate) fn runs(&self, session: SessionId) {
        self.session.set(Some(session));
    }

    /// A link that nobody listens to, for `--stdio`.
    pub(crate) fn none() -> Self {
        Self { out: mpsc::channel(1).0, session: Rc::default(), up: Rc::default() }
    }

    /// Whether a supervisor is there.
    pub(crate) fn is_up(&self) -> bool {
        self.up.get()
    }
}

/// Serves `listener`; events come out of the receiver.
pub(crate) fn serve(listener: UnixListener) -> (Link, mpsc::Receiver<LinkEvent>) {
    let (out, messages) = mpsc::channel(WAITING_MESSAGES);
    let (events_in, events) = mpsc::channel(WAITING_MESSAGES);
    let link = Link { out, session: Rc::default(), up: Rc::default() };
    tokio::task::spawn_local(run(listener, messages, events_in, link.clone()));
    (link, events)
}

async fn run(
    listener: UnixListener,
    mut messages: mpsc::Receiver<Outgoing>,
    events: mpsc::Sender<LinkEvent>,
    link: Link,
) {
    let mut current: Option<(LinkReader, LinkWriter)> = None;
    loop {
        let event = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if is_ours(&stream) => match greet(split(stream), link.session.get()).await {
                    Ok(pair) => {
                        current = Some(pair);
                        LinkEvent::Up
                    }
                    Err(_) => continue,
                },
                Ok(_) => continue,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a supervisor");
                    continue;
                }
            },
            Some(Outgoing { message, with, written }) = messages.recv() => {
                let sent = match (&mut current, &with) {
                    (Some((_, writer)), Some(with)) => {
                        writer.hand_over(&message, with.socket.as_fd(), &with.bytes).await.map(|()| true)
                    }
                    (Some((_, writer)), None) => writer.send(&message).await.map(|()| true),
                    (None, _) => Ok(false),
                };
                if let (Ok(true), Some(written)) = (&sent, written) {
                    // Whoever gave it waits for this.
                    let _ = written.send(());
                }
                if sent.is_ok() {
                    continue;
                }
                current = None;
                LinkEvent::Down
            }
            read = next(&mut current) => if let Ok(Some((message, hand_over))) = read {
                LinkEvent::Message(message, hand_over)
            } else {
                current = None;
                LinkEvent::Down
            },
        };
        link.up.set(current.is_some());
        if events.send(event).await.is_err() {
            return;
        }
    }
}

async fn next(current: &mut Option<(LinkReader, LinkWriter)>) -> io::Result<Option<(ToWorker, Option<HandOver>)>> {
    match current {
        Some((reader, _)) => reader.next(ToWorker::raw).await,
        None => std::future::pending().await,
    }
}

async fn greet(
    (reader, mut writer): (LinkReader, LinkWriter),
    session_id: Option<SessionId>,
) -> io::Result<(LinkReader, LinkWriter)> {
    let pid = i32::try_from(std::process::id()).map_err(io::Error::other)?;
    let hello = ToSupervisor::Hello { link_version: VERSION, release: shared::RELEASE.to_owned(), pid, session_id };
    writer.send(&hello).await?;
    Ok((reader, writer))
}

fn is_ours(stream: &tokio::net::UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw())
}
