//! One session: its inbox, its journal, its clients and the turn that runs.
//!
//! One task owns everything. A turn runs beside it and speaks through its sink; a client speaks
//! through the inbox. Whatever is told was journaled first ([`told`]).

mod attachments;
mod blobs;
mod clients;
mod closing;
pub(crate) mod connection;
mod inbox;
mod joining;
mod journal;
mod moving;
mod open;
mod queue;
mod record;
mod relay;
mod setup;
mod state;
mod told;
mod turns;
mod wanted;

use std::rc::Rc;
use std::time::Duration;

use shared::config::Config;
use shared::fs::Lock;
use shared::layout::{Layout, SessionDir};
use shared::link::EndReason;
use shared::protocol::SessionId;
use shared::protocol::client::OnDisconnect;
use shared::registry::SessionMeta;
use shared::secret::Mask;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agents::Agents;
use crate::agents::conversation::Snapshot;
use crate::approvals::Broker;
use crate::link::Link;
use crate::provider::Provider;
use crate::runs::Runs;
use crate::tools::Toolbox;
use crate::turn::sink::FromTurn;
use clients::Clients;
use connection::Connection;
use journal::Journal;
use setup::Secrets;
use state::State;

pub(crate) use moving::Moved;
pub(crate) use open::{Opening, Staged, open, rehearse};

/// Messages of clients that wait for the session.
const WAITING_INPUTS: usize = 64;

/// How long a closing session waits for its clients to read what was said last (protocol).
const FAREWELL: Duration = Duration::from_secs(2);

/// What was told and could not be written is tried again after this: there may be room meanwhile.
const OWED_EVERY: Duration = Duration::from_secs(1);

/// A session whose client crashed without coming back is closed after this.
const CRASHED_CLOSES_AFTER: Duration = Duration::from_mins(1);

/// A client of this session; grows over the session's whole life, so that a request id never
/// means two things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientId(u64);

impl ClientId {
    /// A request of this client, as others see it.
    fn qualify(self, request_id: &str) -> String {
        format!("client:{}:{request_id}", self.0)
    }

    /// The client's own id of a request, if it is this client's.
    fn strip(self, request_id: &str) -> Option<&str> {
        let (number, own) = request_id.strip_prefix("client:")?.split_once(':')?;
        (number.parse() == Ok(self.0)).then_some(own)
    }
}

/// What reaches a session.
#[derive(Debug)]
pub(crate) enum Input {
    /// A client joins; its first line says how.
    Connected(Box<Connection>),
    /// A line of a client.
    Line {
        /// The client.
        client: ClientId,
        /// The line.
        line: Vec<u8>,
    },
    /// A line of a client that was over the limit.
    TooLong {
        /// The client.
        client: ClientId,
    },
    /// A client sends nothing more; it may still read.
    Eof {
        /// The client.
        client: ClientId,
    },
    /// A client is gone.
    Gone {
        /// The client.
        client: ClientId,
    },
    /// Somebody answered for the supervisor.
    Relayed {
        /// The client.
        client: ClientId,
        /// The answer, a line.
        line: Vec<u8>,
    },
    /// Give the session to a newer worker once it is idle.
    Renew,
    /// A supervisor connected.
    SupervisorUp,
    /// End one run, as cancelled.
    Kill {
        /// The run.
        handle: String,
    },
    /// The supervisor lets the worker leave.
    MayLeave,
    /// The worker has to end.
    End(EndReason),
}

/// The turn that runs now, as the session sees it.
#[derive(Debug)]
struct Running {
    cancel: CancellationToken,
    events: mpsc::Receiver<FromTurn>,
    /// The text of the answer that streams now.
    partial: String,
    /// What it does, for lists.
    activity: String,
    task: tokio::task::JoinHandle<()>,
}

/// One session.
pub(crate) struct Session {
    id: SessionId,
    dir: SessionDir,
    layout: Layout,
    meta: SessionMeta,
    config: Rc<Config>,
    journal: Journal,
    state: State,
    /// Records that could not be written yet: the disk was full.
    owed: Vec<record::Record>,
    clients: Clients,
    next_client: u64,
    broker: Broker,
    running: Option<Running>,
    tools: Rc<Toolbox>,
    runs: Runs,
    provider: Rc<dyn Provider>,
    instructions: Rc<str>,
    conversations: watch::Receiver<Snapshot>,
    agents: Option<Rc<Agents>>,
    mask: Rc<Mask>,
    model: String,
    link: Link,
    /// Whether the mark in `wanted/` exists.
    wanted: bool,
    /// Whether this worker made sure that the session's own files are on the disk.
    durable: bool,
    inputs_in: mpsc::Sender<Input>,
    inputs: mpsc::Receiver<Input>,
    /// Whether it is given to a newer worker once it is idle.
    renew: bool,
    /// The part of its environment that is in no file.
    secrets: Secrets,
    /// Set when the session is on its way out.
    leaving: Option<closing::Leaving>,
    /// When an idle session leaves by itself.
    idle_since: Instant,
    /// When a recovered session without a client closes.
    recovered_at: Option<Instant>,
    lock: Lock,
}

/// Why a session's worker may exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was idle; attaching wakes it.
    Hibernated,
    /// Its processes were ended on purpose.
    Closed,
    /// The supervisor stops.
    Stopped,
    /// Another worker has it.
    Moved,
}

impl Session {
    /// Where inputs go.
    pub(crate) fn inputs(&self) -> mpsc::Sender<Input> {
        self.inputs_in.clone()
    }

    /// Runs the session until its worker may exit.
    pub(crate) async fn run(mut self) -> Ended {
        self.say_state();
        loop {
            if let Some(ended) = self.ends() {
                return self.farewell(ended).await;
            }
            if self.renew && self.can_move() && self.opens_again() {
                return self.give_away().await;
            }
            let now = Instant::now();
            self.broker.attend(self.clients.can_answer(), now);
            let in_the_way = self.clients.close_those_in_the_way(now.into_std());
            // Nobody is waited for on the way out.
            let wait = self.clients.are_full(now.into_std()) && self.leaving.is_none();
            let wake = self.next_wake(in_the_way.map(Instant::from_std));
            let room = self.clients.room.clone();
            tokio::select! {
                Some(input) = self.inputs.recv() => self.input(input),
                message = next_of_turn(self.running.as_mut()), if !wait => self.turn_says(message),
                () = room.notified() => self.feed(),
                Ok(()) = self.conversations.changed() => self.conversations_changed(),
                () = sleep_until(wake) => self.tick(),
            }
        }
    }

    fn input(&mut self, input: Input) {
        match input {
            Input::Connected(connection) => self.connected(*connection),
            Input::Line { client, line } => self.line(client, &line),
            Input::TooLong { client } => self.too_long(client),
            Input::Eof { client } => self.half_closed(client),
            Input::Gone { client } => self.gone(client),
            Input::Relayed { client, line } => self.relayed(client, line),
            Input::Renew => self.renew = true,
            Input::SupervisorUp => self.say_state(),
            Input::Kill { handle } => {
                let runs = self.runs.clone();
                // The call that runs it ends as cancelled and says so itself.
                tokio::task::spawn_local(async move { runs.kill(&handle).await });
            }
            Input::MayLeave => self.let_go(),
            Input::End(EndReason::Stopped) => self.leave(Ended::Stopped),
            Input::End(EndReason::Closed) => self.leave(Ended::Closed),
        }
    }

    /// Feeds clients that are behind.
    fn feed(&mut self) {
        let partial = self.partial();
        self.clients.catch_up(&self.journal, self.state.seq, partial.as_ref());
    }

    /// What is due by the clock.
    fn tick(&mut self) {
        let now = Instant::now();
        for approval_id in self.broker.expired(now) {
            self.resolve(&approval_id, false, told::By::Timeout, None);
        }
        self.end_overdue_turn();
        if !self.owed.is_empty() && self.write_owed() {
            // What waited behind it has its turn.
            self.next_turn();
        }
        if self.leaving.is_none() && self.hibernates_at().is_some_and(|due| due <= now) {
            self.leave(Ended::Hibernated);
        }
        if self.leaving.is_none() && self.closes_at().is_some_and(|due| due <= now) {
            self.leave(Ended::Closed);
        }
        self.drop_hung_up();
    }

    fn next_wake(&self, in_the_way: Option<Instant>) -> Option<Instant> {
        let approvals = self.broker.deadline();
        let leaving = self.leaving.as_ref().map(closing::Leaving::deadline);
        let half_closed =
            self.clients.iter().any(|(_, client)| !client.reading).then(|| Instant::now() + Duration::from_secs(1));
        let owed = (!self.owed.is_empty()).then(|| Instant::now() + OWED_EVERY);
        [in_the_way, approvals, leaving, half_closed, owed, self.hibernates_at(), self.closes_at()]
            .into_iter()
            .flatten()
            .min()
    }

    /// When an idle session without clients leaves its worker.
    fn hibernates_at(&self) -> Option<Instant> {
        let after = self.config.session.hibernate_seconds;
        let idle = self.clients.len() == 0 && self.running.is_none() && self.leaving.is_none() && self.owed.is_empty();
        (after > 0 && idle).then(|| self.idle_since + Duration::from_secs(after))
    }

    /// When a recovered session to which nobody came back is closed.
    fn closes_at(&self) -> Option<Instant> {
        let alone = self.clients.len() == 0 && self.leaving.is_none() && self.meta.on_disconnect == OnDisconnect::Close;
        self.recovered_at.filter(|_| alone).map(|at| at + CRASHED_CLOSES_AFTER)
    }
}

async fn next_of_turn(running: Option<&mut Running>) -> Option<FromTurn> {
    match running {
        Some(running) => running.events.recv().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
