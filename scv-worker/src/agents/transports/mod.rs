//! How an agent is talked to: four verbs, one file a transport.
//!
//! A transport starts processes, asks, and listens. Why a turn stops, what becomes of the
//! conversation and what the model is told is decided in [`super::delegation`].

mod resume;

use std::io;
use std::path::PathBuf;

use futures_util::future::LocalBoxFuture;
use shared::config;
use shared::process::{End, Exit, RunEnd};
use tokio::sync::watch;

use super::Profile;
use super::conversation::Turn;
use super::home::Env;
use super::invocation::Invocation;
use super::output::{Heard, Phase};
use super::record::Ticket;
use crate::call::Progress;

/// One way to talk to an agent.
pub(crate) trait Transport {
    /// Makes ready what the turns need. Called once, when the run is on record.
    fn open(&mut self, place: Place) -> LocalBoxFuture<'_, io::Result<()>>;

    /// Asks, and listens until the agent is done or gone. Dropped when the turn has to stop; what
    /// `ear` heard by then stays.
    fn turn<'a>(&'a mut self, ask: &'a Invocation, ear: &'a mut Ear<'_>) -> LocalBoxFuture<'a, io::Result<Exit>>;

    /// Asks the agent to stop the turn, and tells whether it did so in time.
    fn cancel<'a>(&'a mut self, ear: &'a mut Ear<'_>) -> LocalBoxFuture<'a, bool>;

    /// Ends every process and hears what they still say.
    fn close<'a>(self: Box<Self>, how: End, ear: &'a mut Ear<'_>) -> LocalBoxFuture<'a, Option<RunEnd>>;
}

/// The transport that `[agents.<name>]` asks for; `None` if there is none, so that the agent
/// cannot be offered.
pub(crate) fn choose(profile: &Profile) -> Option<Box<dyn Transport>> {
    match profile.transport {
        config::Transport::Auto | config::Transport::Resume => Some(Box::<resume::Resume>::default()),
        config::Transport::Acp => None,
    }
}

/// Where an agent runs.
pub(crate) struct Place {
    /// Starts its processes and keeps its record.
    pub ticket: Ticket,
    /// The directory that it works in.
    pub cwd: PathBuf,
    /// Its whole environment.
    pub env: Env,
}

/// Listens to one turn: keeps what is said, shows what is done, and notes which conversation the
/// agent says that it is.
pub(crate) struct Ear<'a> {
    heard: Heard,
    progress: &'a Progress,
    conversation: Option<&'a mut Turn>,
    phase: watch::Sender<Phase>,
}

impl<'a> Ear<'a> {
    /// Nothing was heard yet.
    pub(crate) fn new(heard: Heard, progress: &'a Progress, conversation: Option<&'a mut Turn>) -> Self {
        Self { heard, progress, conversation, phase: watch::Sender::new(Phase::Working) }
    }

    /// How far the agent is, with a change at every sign of life.
    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// The next bytes of stdout.
    pub(crate) fn stdout(&mut self, bytes: &[u8]) {
        self.heard.stdout(bytes);
        self.attend();
    }

    /// The next bytes of stderr.
    pub(crate) fn stderr(&mut self, bytes: &[u8]) {
        self.heard.stderr(bytes);
    }

    /// stdout was closed: there is nothing more to wait for than the exit.
    pub(crate) fn deaf(&mut self) {
        self.phase.send_replace(Phase::Ended);
    }

    /// What was heard in all.
    pub(crate) fn finish(mut self) -> Heard {
        self.heard.finish();
        self.attend();
        self.heard
    }

    fn attend(&mut self) {
        let said = &mut self.heard.said;
        for line in said.progress.drain(..) {
            self.progress.line(&line);
        }
        if let (Some(thread), Some(conversation)) = (&said.thread, &mut self.conversation) {
            conversation.confirm(thread);
        }
        self.phase.send_replace(said.phase);
    }
}
