//! A client of the socket: connect, shake hands, send, follow.
//!
//! Knows nothing of what an event means; whoever owns the client decides.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use crate::RELEASE;
use crate::layout::Layout;
use crate::link::SocketAddress;
use crate::protocol::client::{DaemonControl, Initialize, Peer};
use crate::protocol::control::{Command, Status};
use crate::protocol::frame::{Decoder, Frame};
use crate::protocol::server::{Reply, WireError};
use crate::protocol::{ClientMessage, PROTOCOL_VERSION, ServerEvent, limits};

/// A supervisor that is up answers `initialize` at once; one that was stopped by a debugger never does.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// How long a full listen queue is waited for.
const QUEUE_FULL_WITHIN: Duration = Duration::from_secs(2);

/// Stopping takes the supervisor 2 s at most; everything else is answered at once.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// What went wrong between us and the supervisor.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no supervisor runs for {}", home.display())]
    NotRunning {
        /// The instance.
        home: PathBuf,
    },
    /// The socket cannot be used.
    #[error("cannot connect to {}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The other side is somebody else's process.
    #[error("the process behind {} belongs to user {uid}, not to you", socket.display())]
    NotOurs {
        /// The socket.
        socket: PathBuf,
        /// Its user.
        uid: u32,
    },
    /// No answer in time.
    #[error("the supervisor{} did not answer {what} within {} s", pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default(), within.as_secs())]
    Deaf {
        /// What was asked.
        what: &'static str,
        /// Who listens.
        pid: Option<i32>,
        /// How long we waited.
        within: Duration,
    },
    /// The request was refused.
    #[error("{}", .0.message)]
    Refused(WireError),
    /// The connection ended.
    #[error("the connection ended before the answer")]
    Lost,
    /// Reading or writing failed.
    #[error("the connection broke")]
    Broken(#[source] io::Error),
    /// A frame over the limit.
    #[error("the server sent a frame of more than {} bytes", limits::SERVER_FRAME_BYTES)]
    TooLong,
    /// What came is not the protocol.
    #[error("the server sent a line that is no event")]
    Garbage(#[source] serde_json::Error),
    /// What is to be sent is no JSON, as a path that is no UTF-8.
    #[error("the request cannot be written as JSON")]
    Unsendable(#[source] serde_json::Error),
    /// What is to be sent is over the limit.
    #[error("the request has {bytes} bytes, and at most {} may be sent", limits::CLIENT_FRAME_BYTES)]
    RequestTooLong {
        /// Its size.
        bytes: usize,
    },
}

impl ClientError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotRunning { .. } => "`scv start` starts one",
            Self::Connect { .. } => "look at the permissions of the socket and its directory",
            Self::NotOurs { .. } => "choose a home that only you can write to with `--scv-home`",
            Self::Deaf { .. } => "end it with `kill -KILL` and run `scv start`; its sessions come back",
            Self::Lost | Self::Broken(_) => "`scv status` tells whether the supervisor runs",
            Self::TooLong | Self::Garbage(_) => "another program may listen there, or one of another release",
            Self::RequestTooLong { .. } => "a smaller environment or prompt fits",
            Self::Unsendable(_) => "a path that is not UTF-8 cannot be sent; use another one",
            Self::Refused(_) => return None,
        })
    }
}

/// An event, and the line that it came in (without its newline).
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// The event.
    pub event: ServerEvent,
    /// The line.
    pub line: Vec<u8>,
}

/// A connection that has said hello.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    decoder: Decoder,
    /// What one read takes; on the heap, to keep futures small.
    chunk: Vec<u8>,
    requests: u64,
    /// Who answers.
    server: Peer,
    /// Of the features asked for, those in force.
    features: Vec<String>,
}

impl Client {
    /// Connects to the supervisor of `layout` and shakes hands. Starts nothing.
    pub async fn connect(layout: &Layout, name: &str, features: &[&str]) -> Result<Self, ClientError> {
        let stream = dial(layout).await?;
        let mut client = Self {
            stream,
            decoder: Decoder::new(limits::SERVER_FRAME_BYTES),
            chunk: vec![0; 16 << 10],
            requests: 0,
            server: Peer::default(),
            features: Vec::new(),
        };
        let hello = ClientMessage::Initialize(Initialize {
            request_id: client.request_id(),
            protocol_version: PROTOCOL_VERSION,
            client: Peer { name: name.into(), version: RELEASE.into() },
            features: features.iter().map(|feature| (*feature).to_owned()).collect(),
        });
        client.send(&hello).await?;
        let pid = client.pid();
        let deaf = |_| ClientError::Deaf { what: "the handshake", pid, within: HANDSHAKE_WITHIN };
        timeout(HANDSHAKE_WITHIN, client.greeted()).await.map_err(deaf)??;
        Ok(client)
    }

    /// Who answers: its name and release.
    pub fn server(&self) -> &Peer {
        &self.server
    }

    /// Whether a feature that was asked for is in force.
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|f| f == feature)
    }

    /// An id that no other request of this connection has.
    pub fn request_id(&mut self) -> String {
        self.requests += 1;
        format!("r{}", self.requests)
    }

    /// Sends a message. Not cancel-safe.
    pub async fn send(&mut self, message: &ClientMessage) -> Result<(), ClientError> {
        let mut line = serde_json::to_vec(message).map_err(ClientError::Unsendable)?;
        if line.len() > limits::CLIENT_FRAME_BYTES {
            return Err(ClientError::RequestTooLong { bytes: line.len() });
        }
        line.push(b'\n');
        self.stream.write_all(&line).await.map_err(broken)
    }

    /// The next event; `None` once the server has closed the connection. Cancel-safe.
    pub async fn next_event(&mut self) -> Result<Option<Received>, ClientError> {
        loop {
            match self.decoder.next() {
                Some(Frame::Line(line)) => {
                    let event = serde_json::from_slice(&line).map_err(ClientError::Garbage)?;
                    return Ok(Some(Received { event, line }));
                }
                Some(Frame::TooLong) => return Err(ClientError::TooLong),
                None => {}
            }
            match self.stream.read(&mut self.chunk).await {
                // Half a line at the end is no event.
                Ok(0) => return Ok(None),
                Ok(read) => self.decoder.push(&self.chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(broken(error)),
            }
        }
    }

    /// Asks the supervisor and waits for its answer; other events on the way are dropped.
    pub async fn control(&mut self, command: Command) -> Result<Status, ClientError> {
        self.control_within(command, ANSWER_WITHIN).await
    }

    /// As [`control`](Self::control), for what takes longer.
    pub async fn control_within(&mut self, command: Command, within: Duration) -> Result<Status, ClientError> {
        let request_id = self.request_id();
        self.send(&ClientMessage::DaemonControl(DaemonControl { request_id: request_id.clone(), command })).await?;
        let pid = self.pid();
        let deaf = |_| ClientError::Deaf { what: "the request", pid, within };
        timeout(within, self.answer(&request_id)).await.map_err(deaf)?
    }

    /// Waits until the server has closed the connection, at most `within`.
    pub async fn closed(&mut self, within: Duration) -> bool {
        let end = async { while let Ok(Some(_)) = self.next_event().await {} };
        timeout(within, end).await.is_ok()
    }

    /// Who listened when we connected (unix(7), `SO_PEERCRED`).
    fn pid(&self) -> Option<i32> {
        self.stream.peer_cred().ok()?.pid()
    }

    async fn greeted(&mut self) -> Result<(), ClientError> {
        while let Some(received) = self.next_event().await? {
            match received.event {
                ServerEvent::Reply(Reply::Initialized { server, features, .. }) => {
                    self.server = server;
                    self.features = features;
                    return Ok(());
                }
                ServerEvent::Reply(Reply::Error(error)) => return Err(ClientError::Refused(error)),
                _ => {}
            }
        }
        Err(ClientError::Lost)
    }

    async fn answer(&mut self, request: &str) -> Result<Status, ClientError> {
        while let Some(received) = self.next_event().await? {
            match received.event {
                ServerEvent::Reply(Reply::DaemonStatus { request_id, status }) if request_id == request => {
                    return Ok(*status);
                }
                ServerEvent::Reply(Reply::Error(error))
                    if error.fatal || error.request_id.as_deref() == Some(request) =>
                {
                    return Err(ClientError::Refused(error));
                }
                _ => {}
            }
        }
        Err(ClientError::Lost)
    }
}

fn broken(error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ClientError::Lost,
        _ => ClientError::Broken(error),
    }
}

async fn dial(layout: &Layout) -> Result<UnixStream, ClientError> {
    let socket = layout.socket();
    let deadline = Instant::now() + QUEUE_FULL_WITHIN;
    let stream = loop {
        match open(&socket).await {
            Ok(stream) => break stream,
            // No socket, no directory for it, or nobody behind it.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                return Err(ClientError::NotRunning { home: layout.home().to_owned() });
            }
            // The listen queue is full (unix(7), EAGAIN of a non-blocking connect).
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                sleep(Duration::from_millis(10)).await;
            }
            Err(source) => return Err(ClientError::Connect { socket, source }),
        }
    };
    let peer = stream.peer_cred().map_err(|source| ClientError::Connect { socket: socket.clone(), source })?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Err(ClientError::NotOurs { socket, uid: peer.uid() });
    }
    Ok(stream)
}

async fn open(socket: &Path) -> io::Result<UnixStream> {
    let address = SocketAddress::of(socket)?;
    UnixStream::connect(address.path()).await
}

#[cfg(test)]
mod tests;
