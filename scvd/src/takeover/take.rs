//! The new supervisor's side: says that it is able to, takes everything, says that it is up.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use shared::link::{self, HandOver, LinkReader, LinkWriter};
use tokio::net::UnixStream;
use tracing::info;

use super::parking::Inherited;
use super::{ToPredecessor, ToSuccessor, VERSION, raw};

/// The connection to the supervisor that is in charge.
pub(crate) struct Heir {
    reader: LinkReader,
    writer: LinkWriter,
}

/// What it gave.
#[derive(Debug)]
pub(crate) struct Estate {
    /// Its process.
    pub(crate) pid: i32,
    /// The locked file.
    pub(crate) lock: OwnedFd,
    /// The listening socket; none if it had none.
    pub(crate) listener: Option<OwnedFd>,
    /// Whether the service manager made that socket.
    pub(crate) is_inherited: bool,
    /// The soft limit on files before it was raised.
    pub(crate) nofile: Option<u64>,
    /// Processes that were ended so far.
    pub(crate) orphans_ended: u64,
    /// Whether idle workers are renewed, of whatever release.
    pub(crate) when_idle: bool,
    /// Its clients.
    pub(crate) clients: Vec<Inherited>,
}

impl Heir {
    /// Takes the connection from standard input, which gets free.
    pub(crate) fn connect() -> io::Result<Self> {
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        nix::unistd::dup2_stdin(OpenOptions::new().read(true).open("/dev/null")?)?;
        let socket = StdStream::from(socket);
        // Fails for what is no socket.
        socket.local_addr()?;
        socket.set_nonblocking(true)?;
        let (reader, writer) = link::split(UnixStream::from_std(socket)?);
        Ok(Self { reader, writer })
    }

    /// Says that we are able to take over, and takes everything.
    pub(crate) async fn receive(&mut self) -> io::Result<Estate> {
        self.writer.send(&ToPredecessor::Prepared { version: VERSION, release: shared::RELEASE.to_owned() }).await?;
        let mut estate = None;
        loop {
            let Some((message, hand_over)) = self.reader.next(raw).await? else {
                return Err(io::Error::other("the supervisor that was to be replaced is gone"));
            };
            match (message, hand_over, &mut estate) {
                (ToSuccessor::Lock { pid, nofile, orphans_ended, when_idle, .. }, Some(lock), None) => {
                    let lock = lock.socket;
                    estate = Some(Estate {
                        pid,
                        lock,
                        listener: None,
                        is_inherited: false,
                        nofile,
                        orphans_ended,
                        when_idle,
                        clients: vec![],
                    });
                }
                (ToSuccessor::Listener { is_inherited, .. }, Some(listener), Some(estate)) => {
                    estate.is_inherited = is_inherited;
                    estate.listener = Some(listener.socket);
                }
                (ToSuccessor::Client { greeting, watch, restart, .. }, Some(client), Some(estate)) => {
                    let HandOver { socket, bytes } = client;
                    estate.clients.push(Inherited { socket: Some(socket), greeting, watch, restart, bytes });
                }
                (ToSuccessor::Begin {}, None, Some(_)) => break,
                (ToSuccessor::Unknown, ..) => {}
                _ => return Err(io::Error::other("what the old supervisor gives makes no sense")),
            }
        }
        estate.ok_or_else(|| io::Error::other("there was no lock"))
    }

    /// Says that we are up; returns when the old one does nothing any more, or is gone.
    pub(crate) async fn succeed(mut self) {
        // It may have died; then everything is ours already.
        let _ = self.writer.send(&ToPredecessor::Up {}).await;
        match self.reader.next(raw).await {
            Ok(Some((ToSuccessor::Yours {}, _))) => info!("took over"),
            other => info!("took over from a supervisor that is gone ({other:?})"),
        }
    }
}
