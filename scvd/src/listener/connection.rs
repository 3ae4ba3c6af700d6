//! One connection: reads its lines, shakes hands, answers control requests, hands it over.
//!
//! One request at a time, each answered before the next is looked at; so at most one answer
//! waits for a client that does not read, and only so long.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use shared::protocol::client::{self, ClientMessage, DaemonControl, Initialize};
use shared::protocol::frame::{Decoder, Frame};
use shared::protocol::limits::{CLIENT_FRAME_BYTES, INITIALIZE_WITHIN};
use shared::protocol::server::Reply;
use shared::protocol::{ErrorCode, ServerEvent};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use super::handover::{self, Opening};
use super::handshake::{Greeting, initialize};
use super::load::Share;
use crate::control::{self, Watcher};
use crate::daemon::{Daemon, End};
use crate::takeover::{Greeted, Inherited, Parked, Restart};

/// A client that does not take an answer within this is gone.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What is read of a connection at a time.
const CHUNK_BYTES: usize = 16 << 10;

/// Serves one client until it leaves or belongs to a worker.
pub(super) async fn serve(daemon: Rc<Daemon>, stream: UnixStream, share: Share) {
    let connection = Connection {
        daemon,
        stream: Rc::new(stream),
        share,
        lines: Decoder::new(CLIENT_FRAME_BYTES),
        greeting: None,
        watcher: None,
    };
    run(connection, None).await;
}

/// Goes on with a client that an earlier supervisor has parked.
pub(super) async fn go_on(daemon: Rc<Daemon>, stream: UnixStream, share: Share, client: Inherited) {
    let Inherited { greeting, watch, restart, bytes, socket: _ } = client;
    let mut lines = Decoder::new(CLIENT_FRAME_BYTES);
    lines.push(&bytes);
    let greeting = greeting.map(|Greeted { peer, features }| Greeting { peer, features });
    // What changed meanwhile is in the snapshot that it begins with.
    let watcher = watch.map(|request_id| Watcher::new(daemon.clone(), request_id));
    run(Connection { daemon, stream: Rc::new(stream), share, lines, greeting, watcher }, restart).await;
}

async fn run(connection: Connection, owed: Option<String>) {
    if let Some(request_id) = owed {
        let status = Box::new(control::status(&connection.daemon));
        let answer = ServerEvent::Reply(Reply::DaemonStatus { request_id, status });
        if let Err(cause) = connection.send(&answer).await {
            return debug!("a client did not hear that we took over: {cause}");
        }
    }
    if let Err(cause) = connection.run().await {
        debug!("a connection ended: {cause}");
    }
}

struct Connection {
    daemon: Rc<Daemon>,
    stream: Rc<UnixStream>,
    share: Share,
    lines: Decoder,
    /// Set by `initialize`.
    greeting: Option<Greeting>,
    /// Set by `watch`.
    watcher: Option<Watcher>,
}

/// What becomes of the connection after a message.
enum Next {
    Go,
    End,
}

impl Connection {
    async fn run(mut self) -> io::Result<()> {
        let deadline = Instant::now() + INITIALIZE_WITHIN;
        if let Next::End = self.take_all().await? {
            return Ok(());
        }
        loop {
            tokio::select! {
                readable = self.stream.readable() => readable?,
                () = self.daemon.parking.begun() => {
                    self.park(None).await;
                    continue;
                }
                event = next_change(&mut self.watcher) => {
                    self.send(&event).await?;
                    continue;
                }
                () = sleep_until(deadline), if self.greeting.is_none() => return Ok(()),
            }
            match self.read()? {
                Some(0) => return Ok(()),
                Some(_) => {}
                None => continue,
            }
            if let Next::End = self.take_all().await? {
                return Ok(());
            }
            if !self.share.unfinished(self.lines.pending_bytes()) {
                let why = "too many unfinished lines at once; try again later";
                return self.send(&ServerEvent::fatal(None, ErrorCode::Unavailable, why)).await;
            }
        }
    }

    /// Reads what is there into the decoder; `None` if it was nothing after all.
    fn read(&mut self) -> io::Result<Option<usize>> {
        // Here and not in the task: an idle connection has no buffer.
        let mut chunk = [0; CHUNK_BYTES];
        match self.stream.try_read(&mut chunk) {
            Ok(read) => {
                self.lines.push(&chunk[..read]);
                Ok(Some(read))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn take(&mut self, frame: Frame) -> io::Result<Next> {
        let line = match frame {
            Frame::Line(line) => line,
            Frame::TooLong => {
                let why = format!("a line may have at most {CLIENT_FRAME_BYTES} bytes");
                return self.refuse(None, ErrorCode::InvalidRequest, why).await;
            }
        };
        let message = match client::parse(&line) {
            Ok(message) => message,
            Err(bad) => return self.refuse(bad.request_id, bad.code, bad.reason).await,
        };
        let request_id = message.request_id().map(str::to_owned);
        match message {
            ClientMessage::Initialize(message) => self.initialize(message).await,
            _ if self.greeting.is_none() => {
                self.refuse(request_id, ErrorCode::NotInitialized, "`initialize` has to come first").await
            }
            ClientMessage::DaemonControl(message) => self.control(message).await,
            ClientMessage::SessionStart(message) => {
                self.open(Opening::start(message.request_id, message.session_id), line).await
            }
            ClientMessage::SessionAttach(message) => {
                self.open(Opening::attach(message.request_id, message.session_id), line).await
            }
            ClientMessage::SessionDetach(_)
            | ClientMessage::SessionClose(_)
            | ClientMessage::SessionPause(_)
            | ClientMessage::SessionClear(_)
            | ClientMessage::TurnStart(_)
            | ClientMessage::TurnCancel(_)
            | ClientMessage::ApprovalResolve(_)
            | ClientMessage::QueueUpdate(_)
            | ClientMessage::QueueMove(_)
            | ClientMessage::QueueRemove(_) => {
                let why = "this connection has no session: `session.start` or `session.attach` comes first";
                self.refuse(request_id, ErrorCode::SessionNotFound, why).await
            }
            ClientMessage::Unknown => {
                self.refuse(request_id, ErrorCode::InvalidJson, "this server does not know that message").await
            }
        }
    }

    async fn initialize(&mut self, message: Initialize) -> io::Result<Next> {
        if self.greeting.is_some() {
            let why = "this connection is initialized already";
            return self.refuse(Some(message.request_id), ErrorCode::InvalidRequest, why).await;
        }
        let (answer, greeting) = initialize(message);
        self.send(&answer).await?;
        let next = if greeting.is_some() { Next::Go } else { Next::End };
        self.greeting = greeting;
        Ok(next)
    }

    /// All that has come and is whole.
    async fn take_all(&mut self) -> io::Result<Next> {
        while let Some(frame) = self.lines.next() {
            if let Next::End = self.take(frame).await? {
                return Ok(Next::End);
            }
        }
        Ok(Next::Go)
    }

    /// Waits while one supervisor hands over to the next; where that succeeds, the client is the
    /// next one's, and we end here with the process.
    async fn park(&mut self, restart: Option<String>) {
        let bytes = std::mem::replace(&mut self.lines, Decoder::new(CLIENT_FRAME_BYTES)).into_rest();
        self.lines.push(&bytes);
        let greeting = self.greeting.clone().map(|Greeting { peer, features }| Greeted { peer, features });
        let watch = self.watcher.as_ref().map(|watcher| watcher.request_id().to_owned());
        self.daemon.parking.park(Parked { stream: self.stream.clone(), greeting, watch, restart, bytes }).await;
    }

    /// Asks for a new supervisor. It is the new one that answers, if it comes up.
    async fn restart(&mut self, request_id: String, when_idle: bool) -> io::Result<Next> {
        let (failed, mut has_failed) = oneshot::channel();
        self.daemon.end(End::Restart(Restart { when_idle, failed }));
        loop {
            tokio::select! {
                biased;
                why = &mut has_failed => {
                    let why = why.unwrap_or_else(|_| "the supervisor is ending already".into());
                    return self.refuse(Some(request_id), ErrorCode::Unavailable, why).await;
                }
                () = self.daemon.parking.begun() => self.park(Some(request_id.clone())).await,
            }
        }
    }

    async fn control(&mut self, message: DaemonControl) -> io::Result<Next> {
        let DaemonControl { request_id, command } = message;
        let watches = self.greeting.as_ref().is_some_and(|greeting| greeting.has("watch"));
        if let shared::protocol::control::Command::Watch { .. } = command {
            if !watches {
                let why = "name the feature `watch` in `initialize` to watch";
                return self.refuse(Some(request_id), ErrorCode::InvalidRequest, why).await;
            }
            self.watcher = Some(Watcher::new(self.daemon.clone(), request_id));
            return Ok(Next::Go);
        }
        if let shared::protocol::control::Command::Restart { when_idle } = command {
            return self.restart(request_id, when_idle).await;
        }
        let answer = control::carry_out(&self.daemon, command).await;
        match answer {
            Ok(answer) => {
                // Kept until it is sent: a supervisor that stops waits for this.
                let _farewell = answer.farewell;
                self.send(&ServerEvent::Reply(Reply::DaemonStatus { request_id, status: answer.status })).await?;
                Ok(Next::Go)
            }
            Err(failure) => self.refuse(Some(request_id), failure.code, failure.message).await,
        }
    }

    /// Hands the connection over. It ends here unless nobody takes it.
    async fn open(&mut self, opening: Opening, line: Vec<u8>) -> io::Result<Next> {
        if self.watcher.is_some() {
            let why = "this connection watches; a session needs one of its own";
            return self.refuse(Some(opening.request_id), ErrorCode::InvalidRequest, why).await;
        }
        let Some(greeting) = self.greeting.clone() else { return Ok(Next::End) };
        // The worker reads the message that named the session, and all that came behind it.
        let mut bytes = line;
        bytes.push(b'\n');
        let behind = std::mem::replace(&mut self.lines, Decoder::new(CLIENT_FRAME_BYTES)).into_rest();
        bytes.extend_from_slice(&behind);
        let request_id = opening.request_id.clone();
        match handover::hand_over(&self.daemon, opening, greeting, self.stream.clone(), bytes).await {
            Ok(()) => Ok(Next::End),
            Err(refusal) => {
                self.lines.push(&behind);
                self.refuse(Some(request_id), refusal.code, refusal.message).await
            }
        }
    }

    async fn refuse(
        &mut self,
        request_id: Option<String>,
        code: ErrorCode,
        why: impl Into<String>,
    ) -> io::Result<Next> {
        self.send(&ServerEvent::error(request_id, code, why)).await?;
        Ok(Next::Go)
    }

    async fn send(&self, event: &ServerEvent) -> io::Result<()> {
        let line = event.to_line();
        let mut left = line.as_slice();
        let all = async {
            while !left.is_empty() {
                self.stream.writable().await?;
                match self.stream.try_write(left) {
                    Ok(written) => left = &left[written..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        timeout(ANSWER_WITHIN, all).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

async fn next_change(watcher: &mut Option<Watcher>) -> ServerEvent {
    match watcher {
        Some(watcher) => watcher.next().await,
        None => std::future::pending().await,
    }
}
