//! `scv server --stdio`: the protocol on standard input and output, one session, no supervisor.

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use shared::layout::Layout;
use shared::process::{self, Family};
use shared::protocol::client::{self, ClientMessage, Peer};
use shared::protocol::frame::{Decoder, Frame};
use shared::protocol::server::{Reply, ServerEvent};
use shared::protocol::{ErrorCode, FEATURES, PROTOCOL_VERSION, limits};
use tokio::io::AsyncReadExt as _;

use crate::link::Link;
use crate::session::connection::{Connection, Io};
use crate::session::{self, Input, Opening};
use crate::signals;

/// Serves one session and returns when it is over, or when nobody asks for one.
pub(crate) async fn run(layout: Layout) -> anyhow::Result<()> {
    process::become_subreaper().context("cannot become the reaper of my children")?;
    process::set_name("scv-worker");
    // The guard ends what we leave behind; nobody would end us after its own death.
    rustix::process::set_parent_process_death_signal(Some(process::Signal::TERM))
        .context("cannot follow my guard's death")?;
    let family = Family::new()?;
    let tending = family.clone();
    tokio::task::spawn_local(async move { tending.tend().await });

    let mut handshake = Handshake::new();
    loop {
        let Some(connection) = handshake.run().await? else { return Ok(()) };
        let first = connection.first.split(|b| *b == b'\n').next().unwrap_or_default();
        let message = client::parse(first).ok();
        let id = message.as_ref().and_then(ClientMessage::session_id).unwrap_or_default();
        let config_path = std::env::var_os("SCV_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        let opening = Opening {
            layout: layout.clone(),
            id,
            link: Link::none(),
            family: family.clone(),
            config_path,
            moved: None,
        };
        match session::open(opening, message.as_ref(), None) {
            Ok(session) => {
                let inputs = session.inputs();
                signals::end_the_session(inputs.clone()).context("cannot catch signals")?;
                inputs.send(Input::Connected(Box::new(connection))).await.context("the session takes nothing")?;
                session.run().await;
                return Ok(());
            }
            Err(error) => {
                let request_id = message.as_ref().and_then(ClientMessage::request_id).map(str::to_owned);
                say(&ServerEvent::error(request_id, error.code(), error.to_string()))?;
                // It may ask for another one, and has said more already, perhaps.
                handshake.put_back(&connection.first[(first.len() + 1).min(connection.first.len())..]);
            }
        }
    }
}

/// The first messages of a connection, up to the one that names its session.
#[derive(Debug)]
struct Handshake {
    who: Option<(Peer, Vec<String>)>,
    lines: Decoder,
}

impl Handshake {
    fn new() -> Self {
        Self { who: None, lines: Decoder::new(limits::CLIENT_FRAME_BYTES) }
    }

    /// Takes bytes again that came behind a message that named no session after all.
    fn put_back(&mut self, bytes: &[u8]) {
        self.lines.push(bytes);
    }

    /// `None` when the input ended before a session was named.
    async fn run(&mut self) -> anyhow::Result<Option<Connection>> {
        let mut stdin = tokio::io::stdin();
        let mut chunk = vec![0; 16 << 10];
        loop {
            while let Some(frame) = self.lines.next() {
                let Some(mut first) = self.frame(frame)? else { continue };
                let Some((peer, features)) = self.who.clone() else { continue };
                first.push(b'\n');
                let lines = std::mem::replace(&mut self.lines, Decoder::new(limits::CLIENT_FRAME_BYTES));
                first.extend(lines.into_rest());
                return Ok(Some(Connection { peer, features, io: Io::Stdio, first }));
            }
            match stdin.read(&mut chunk).await? {
                0 => return Ok(None),
                read => self.lines.push(&chunk[..read]),
            }
        }
    }

    /// Answers one frame; gives it back if it names the session.
    fn frame(&mut self, frame: Frame) -> anyhow::Result<Option<Vec<u8>>> {
        let Frame::Line(line) = frame else {
            let text = format!("a frame may have at most {} bytes; this one was skipped", limits::CLIENT_FRAME_BYTES);
            say(&ServerEvent::error(None, ErrorCode::InvalidRequest, text))?;
            return Ok(None);
        };
        let message = match client::parse(&line) {
            Ok(message) => message,
            Err(bad) => {
                say(&ServerEvent::error(bad.request_id, bad.code, bad.reason))?;
                return Ok(None);
            }
        };
        let request_id = message.request_id().map(str::to_owned);
        let refuse = |code, text: &str| say(&ServerEvent::error(request_id.clone(), code, text));
        match message {
            ClientMessage::Initialize(hello) if hello.protocol_version != PROTOCOL_VERSION => {
                let text = format!("this server speaks protocol version {PROTOCOL_VERSION}");
                say(&ServerEvent::fatal(Some(hello.request_id), ErrorCode::VersionMismatch, text))?;
                anyhow::bail!("the client speaks protocol version {}", hello.protocol_version)
            }
            ClientMessage::Initialize(_) if self.who.is_some() => {
                refuse(ErrorCode::InvalidRequest, "this connection is initialized already")?;
            }
            ClientMessage::Initialize(hello) => {
                let mut features = hello.features;
                features.retain(|feature| FEATURES.contains(&feature.as_str()));
                say(&ServerEvent::Reply(Reply::Initialized {
                    request_id: hello.request_id,
                    protocol_version: PROTOCOL_VERSION,
                    server: Peer { name: "scv".to_owned(), version: shared::RELEASE.to_owned() },
                    features: features.clone(),
                }))?;
                self.who = Some((hello.client, features));
            }
            _ if self.who.is_none() => refuse(ErrorCode::NotInitialized, "say initialize first")?,
            ClientMessage::SessionStart(_) | ClientMessage::SessionAttach(_) => return Ok(Some(line)),
            ClientMessage::DaemonControl(_) => {
                refuse(ErrorCode::Unavailable, "this server has no supervisor")?;
            }
            _ => refuse(ErrorCode::SessionNotFound, "this connection has no session; begin with session.start")?,
        }
        Ok(None)
    }
}

fn say(event: &ServerEvent) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(&event.to_line())?;
    stdout.flush()
}
