//! How a session comes to life: new, or back from its directory, whatever ended it.
//!
//! Whoever holds the kernel lock owns the session. A turn that was cut short is told once as
//! interrupted and never run again; prompts that waited still wait, paused.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use shared::clock;
use shared::config::ConfigError;
use shared::fs::{self, Lock, Sync};
use shared::layout::{Layout, SessionDir};
use shared::process::Family;
use shared::protocol::client::{self, ClientMessage, SessionStart};
use shared::protocol::server::TurnBody;
use shared::protocol::{ErrorCode, SessionId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::clients::{About, Clients};
use super::journal::{Journal, Loaded};
use super::moving::Moved;
use super::record::Record;
use super::setup::{Equipment, Secrets, Setup, client_context};
use super::state::State;
use super::{Session, WAITING_INPUTS};
use crate::approvals::{Broker, Patience};
use crate::link::Link;
use crate::workspace;

/// What a session is opened with.
pub(crate) struct Opening {
    /// The instance.
    pub layout: Layout,
    /// The session.
    pub id: SessionId,
    /// The way to the supervisor.
    pub link: Link,
    /// The worker's children.
    pub family: Family,
    /// The configuration of a session whose client names none (`SCV_CONFIG` of the process); where
    /// there is a supervisor, its environment is not the client's.
    pub config_path: Option<PathBuf>,
    /// What the worker gave that had it before, in the place of its lock being taken.
    pub moved: Option<Moved>,
}

/// Why a session cannot be opened. The text is for the client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// Another worker owns it.
    #[error("another process has this session; try again in a moment")]
    Busy,
    /// There is none of this id.
    #[error("there is no session of this id; `scv sessions ls` lists them")]
    NotFound,
    /// The request cannot be met.
    #[error("{0}")]
    Invalid(String),
    /// The configuration is broken.
    #[error("{}", with_cause(.0))]
    Config(#[from] ConfigError),
    /// The workspace cannot be used.
    #[error("{}", with_cause(.0))]
    Workspace(#[from] workspace::OpenError),
    /// The disk.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What could not be done.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl OpenError {
    /// For programs.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::Busy => ErrorCode::SessionBusy,
            Self::NotFound => ErrorCode::SessionNotFound,
            Self::Invalid(_) | Self::Config(_) | Self::Workspace(_) => ErrorCode::InvalidRequest,
            Self::Io { .. } => ErrorCode::InternalError,
        }
    }

    pub(super) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}

/// An error and its causes in one line: a client gets no chain.
fn with_cause(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.extend([": ", &error.to_string()]);
        cause = error.source();
    }
    text
}

/// A session's directory without a name: made by a spare while nobody waits, given its name by one
/// rename.
#[derive(Debug)]
pub(crate) struct Staged {
    dir: SessionDir,
    lock: Lock,
}

impl Staged {
    /// Makes `dir`, its lock and an empty journal.
    pub(crate) fn make(dir: SessionDir) -> io::Result<Self> {
        fs::private_dir(dir.path())?;
        let lock = Lock::try_acquire(&dir.lock())?.ok_or(io::ErrorKind::AlreadyExists)?;
        Journal::open(&dir, |_| {})?;
        Ok(Self { dir, lock })
    }

    /// Becomes the session `dir`, which is not there. Fails where somebody came first, and where
    /// `sessions/` is on a disk of its own.
    fn become_session(self, dir: &SessionDir) -> io::Result<Lock> {
        std::fs::rename(self.dir.path(), dir.path())?;
        Ok(self.lock)
    }
}

/// Opens the session that `message` starts or attaches to; without a message, a wanted one.
pub(crate) fn open(
    opening: Opening,
    message: Option<&ClientMessage>,
    staged: Option<Staged>,
) -> Result<Session, OpenError> {
    let mut opening = opening;
    if let Some(moved) = opening.moved.take() {
        return go_on(opening, moved);
    }
    let start = if let Some(ClientMessage::SessionStart(start)) = message { Some(&**start) } else { None };
    let dir = opening.layout.session(opening.id);
    let is_there = dir.path().exists();
    let fresh = !is_there || is_blank(&dir);
    if fresh {
        check(start.ok_or(OpenError::NotFound)?)?;
    }
    let named = staged.filter(|_| !is_there).and_then(|staged| staged.become_session(&dir).ok());
    let lock = match named {
        Some(lock) => lock,
        None if !is_there => {
            fs::private_dir(dir.path()).map_err(OpenError::io("make the session's directory"))?;
            own(&dir)?
        }
        None => own(&dir)?,
    };
    // Now that nobody else writes in it.
    let fresh = fresh && is_blank(&dir);
    let opened = build(opening, message, start, &Secrets::new(), &dir, lock, fresh).and_then(|mut session| {
        session.recover(message.is_none()).map_err(OpenError::io("write the session's journal"))?;
        Ok(session)
    });
    if opened.is_err() && fresh {
        // Nothing was accepted in it: a start that failed leaves nothing behind.
        let _ = std::fs::remove_dir_all(dir.path());
    }
    opened
}

/// Goes on with a session that another worker gave away.
fn go_on(opening: Opening, moved: Moved) -> Result<Session, OpenError> {
    let Moved { lock, secrets, seq, next_client } = moved;
    let dir = opening.layout.session(opening.id);
    let mut session = build(opening, None, None, &secrets, &dir, still_there(lock, &dir)?, false)?;
    // Nothing was cut short: numbers go on without a gap.
    session.state.seq = session.state.seq.max(seq);
    session.next_client = session.next_client.max(next_client);
    session.unwant();
    Ok(session)
}

/// Whether nothing was ever written in a session's directory: its worker died between naming it and
/// that. Whoever asks for the session again starts it.
fn is_blank(dir: &SessionDir) -> bool {
    let has_records = std::fs::metadata(dir.journal()).is_ok_and(|journal| journal.len() > 0);
    !has_records && !dir.meta().exists()
}

/// Goes through the start of a session and makes none: what costs most the first time, code and
/// memory that the process has not touched yet, is paid by a spare while nobody waits.
pub(crate) fn rehearse(opening: Opening) {
    let start = SessionStart { cwd: opening.layout.home().to_owned(), ..SessionStart::default() };
    let line = serde_json::to_vec(&ClientMessage::SessionStart(Box::new(start))).unwrap_or_default();
    let Ok(message) = client::parse(&line) else { return };
    let ClientMessage::SessionStart(start) = &message else { return };
    let dir = opening.layout.session(opening.id);
    // What is wrong is told to the client whose session it concerns.
    if let Ok(setup) = Setup::read(&opening, Some(&message), Some(start), &Secrets::new(), &dir) {
        let Opening { layout, id, family, .. } = opening;
        let _ = serde_json::to_vec(&setup.meta);
        let _ = Equipment::of(&setup, &layout, id, family, &State::default());
    }
}

/// What can be refused before anything is on the disk.
fn check(start: &SessionStart) -> Result<(), OpenError> {
    if !start.cwd.is_absolute() {
        return Err(OpenError::Invalid(format!("cwd has to be absolute, not {}", start.cwd.display())));
    }
    if start.system_prompt.is_some() && !start.no_tools {
        return Err(OpenError::Invalid("system_prompt is allowed only with no_tools".to_owned()));
    }
    Ok(())
}

/// Takes the session's lock; the directory may have been moved away while we waited for nothing.
fn own(dir: &SessionDir) -> Result<Lock, OpenError> {
    let lock = match Lock::try_acquire(&dir.lock()) {
        Ok(Some(lock)) => lock,
        Ok(None) => return Err(OpenError::Busy),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(OpenError::NotFound),
        Err(error) => return Err(OpenError::io("lock the session")(error)),
    };
    still_there(lock, dir)
}

/// The lock, unless the directory was moved away.
fn still_there(lock: Lock, dir: &SessionDir) -> Result<Lock, OpenError> {
    use std::os::unix::fs::MetadataExt as _;
    let held = lock.file().metadata().map_err(OpenError::io("lock the session"))?;
    let there = std::fs::metadata(dir.lock()).map_err(|_| OpenError::NotFound)?;
    if (held.dev(), held.ino()) == (there.dev(), there.ino()) { Ok(lock) } else { Err(OpenError::NotFound) }
}

fn build(
    opening: Opening,
    message: Option<&ClientMessage>,
    start: Option<&SessionStart>,
    secrets: &Secrets,
    dir: &SessionDir,
    lock: Lock,
    fresh: bool,
) -> Result<Session, OpenError> {
    let setup = Setup::read(&opening, message, start, secrets, dir)?;
    let Opening { layout, id, link, family, .. } = opening;
    let secrets = setup.secrets();
    if fresh || client_context(message).is_some() {
        // A new session has nothing to lose before its first prompt (`make_durable`).
        let sync = if fresh { Sync::Lazy } else { Sync::Durable };
        setup.keep(dir, client_context(message).is_some(), sync).map_err(OpenError::io("write the session's files"))?;
    }
    let mut state = State::default();
    let (mut journal, loaded) =
        Journal::open(dir, |record| state.apply(&record)).map_err(OpenError::io("open the session's journal"))?;
    let torn = report(&loaded);
    // A session that continues another begins with its history: one without a record does not have it yet.
    if journal.len() == 0
        && let Some(earlier) = setup.meta.resumes
    {
        continue_from(&layout, earlier, &mut journal, &mut state)?;
    }
    let equipment = Equipment::of(&setup, &layout, id, family, &state)?;

    let Setup { meta, config, model, provider, lacks_key, .. } = setup;
    let Equipment { mask, runs, conversations, agents, tools, instructions } = equipment;
    let (inputs_in, inputs) = mpsc::channel(WAITING_INPUTS);
    let about = About { session_id: id, cwd: meta.cwd.clone(), model: model.clone(), lacks_key, note: torn };
    Ok(Session {
        id,
        dir: dir.clone(),
        wanted: layout.wanted_session(id).exists(),
        layout,
        meta,
        journal,
        next_client: state.last_client + 1,
        state,
        owed: Vec::new(),
        clients: Clients::new(about),
        broker: Broker::new(Patience {
            attended: Duration::from_secs(config.session.approval_seconds),
            unattended: Duration::from_secs(config.session.unattended_approval_seconds),
        }),
        running: None,
        tools: Rc::new(tools),
        runs,
        provider,
        instructions,
        conversations,
        agents,
        mask,
        model,
        link,
        durable: false,
        inputs_in,
        inputs,
        renew: false,
        secrets,
        leaving: None,
        idle_since: Instant::now(),
        recovered_at: None,
        config: Rc::new(config),
        lock,
    })
}

impl Session {
    /// Says once what the last worker's death cut short.
    fn recover(&mut self, nobody_asked: bool) -> io::Result<()> {
        self.state.skip_to_ceiling();
        if let Some(turn) = self.state.turn.clone() {
            let mut bodies = Vec::new();
            if !turn.told {
                bodies.push(TurnBody::Started { origin: None });
            }
            let ended = fs::read_bounded(&self.dir.ended(), 16).ok();
            bodies.push(super::closing::of_a_dead_worker(ended.as_deref()));
            self.tell_with(Vec::new(), bodies, super::told::Durable::Yes)?;
        }
        // Told by now; a death of the next worker is another one.
        fs::remove(&self.dir.ended())?;
        if !self.state.queue.is_empty() && !self.state.paused {
            self.keep(&[Record::Paused { paused: true }], super::told::Durable::Yes)?;
        }
        if nobody_asked {
            self.recovered_at = Some(Instant::now());
        }
        self.unwant();
        Ok(())
    }
}

/// A new session with the history of a closed one.
fn continue_from(
    layout: &Layout,
    earlier: SessionId,
    journal: &mut Journal,
    state: &mut State,
) -> Result<(), OpenError> {
    let dir = layout.session(earlier);
    if !dir.path().exists() {
        return Err(OpenError::Invalid(format!("there is no session {earlier} to resume")));
    }
    let _lock = own(&dir)?;
    let mut before = State::default();
    Journal::open(&dir, |record| before.apply(&record)).map_err(OpenError::io("read the resumed session's journal"))?;
    *state = State { items: before.items, last_active: clock::unix_ms(), ..State::default() };
    journal
        .append(&[Record::Snapshot { state: Box::new(state.clone()) }])
        .map_err(OpenError::io("write the session's journal"))
}

/// What was wrong with the journal, for the log and for whoever attaches.
fn report(loaded: &Loaded) -> Option<String> {
    let torn = (loaded.torn_bytes > 0).then(|| {
        tracing::warn!(bytes = loaded.torn_bytes, "cut a torn line at the end of the journal");
        format!("the last {} bytes of the session's journal were torn by a crash and are gone", loaded.torn_bytes)
    });
    let unreadable = (loaded.unreadable_lines > 0).then(|| {
        tracing::error!(lines = loaded.unreadable_lines, "the journal has lines that this release cannot read");
        format!("{} lines of the session's journal cannot be read and are left out", loaded.unreadable_lines)
    });
    join(torn, unreadable)
}

pub(super) fn join(one: Option<String>, other: Option<String>) -> Option<String> {
    match (one, other) {
        (Some(one), Some(other)) => Some(format!("{one}; {other}")),
        (one, other) => one.or(other),
    }
}
