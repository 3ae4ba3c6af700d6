//! What a turn tells its session. Nothing that matters is told before it is in the journal: each
//! call here returns once that is so.

use shared::protocol::server::{Risk, TurnBody, Usage};
use tokio::sync::{mpsc, oneshot};

use crate::approvals::Answer;
use crate::provider::Item;

/// The session takes this many messages before a turn has to wait.
const WAITING_MESSAGES: usize = 32;

/// One message of a turn.
#[derive(Debug)]
pub(crate) enum FromTurn {
    /// Tell the clients.
    Tell {
        /// What happened.
        body: TurnBody,
        /// Whether it has to be on the disk first.
        durable: bool,
        /// Answered once it is journaled; without it nobody waits (deltas, progress).
        done: Option<oneshot::Sender<()>>,
    },
    /// Show a line about what the turn waits for; not kept.
    Notice {
        /// The line.
        text: String,
    },
    /// Keep a whole response, and tell what it says.
    Response {
        /// The response's items.
        items: Vec<Item>,
        /// What it cost.
        usage: Usage,
        /// What clients are told of it.
        told: Vec<TurnBody>,
        /// Answered once it is journaled.
        done: oneshot::Sender<()>,
    },
    /// Somebody has to decide.
    Ask {
        /// What is to be decided.
        question: Question,
        /// The answer.
        answer: oneshot::Sender<Answer>,
    },
    /// The turn is over.
    Ended {
        /// Its terminal event.
        body: TurnBody,
    },
}

/// What is to be decided.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// The call.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// What it may do.
    pub risk: Risk,
    /// In words.
    pub summary: String,
}

/// The session can no longer take anything: it is ending, or its journal cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session takes nothing more")]
pub(crate) struct Gone;

/// A turn's way to its session.
#[derive(Clone, Debug)]
pub(crate) struct Sink(mpsc::Sender<FromTurn>);

impl Sink {
    /// A sink and what comes out of it.
    pub(crate) fn new() -> (Self, mpsc::Receiver<FromTurn>) {
        let (sender, receiver) = mpsc::channel(WAITING_MESSAGES);
        (Self(sender), receiver)
    }

    /// Tells what is neither journaled nor replayed; waits only for room.
    pub(crate) async fn show(&self, body: TurnBody) -> Result<(), Gone> {
        self.send(FromTurn::Tell { body, durable: false, done: None }).await
    }

    /// Shows what the turn waits for.
    pub(crate) async fn notice(&self, text: &str) -> Result<(), Gone> {
        self.send(FromTurn::Notice { text: text.to_owned() }).await
    }

    /// Tells what happened.
    pub(crate) async fn tell(&self, body: TurnBody) -> Result<(), Gone> {
        let (done, journaled) = oneshot::channel();
        self.send(FromTurn::Tell { body, durable: false, done: Some(done) }).await?;
        journaled.await.map_err(|_| Gone)
    }

    /// Tells what happened, once it is on the disk.
    pub(crate) async fn tell_durably(&self, body: TurnBody) -> Result<(), Gone> {
        let (done, journaled) = oneshot::channel();
        self.send(FromTurn::Tell { body, durable: true, done: Some(done) }).await?;
        journaled.await.map_err(|_| Gone)
    }

    /// Keeps a whole response.
    pub(crate) async fn response(&self, items: Vec<Item>, usage: Usage, told: Vec<TurnBody>) -> Result<(), Gone> {
        let (done, journaled) = oneshot::channel();
        self.send(FromTurn::Response { items, usage, told, done }).await?;
        journaled.await.map_err(|_| Gone)
    }

    /// Asks; returns when somebody has answered, or nobody can.
    pub(crate) async fn ask(&self, question: Question) -> Result<Answer, Gone> {
        let (answer, answered) = oneshot::channel();
        self.send(FromTurn::Ask { question, answer }).await?;
        answered.await.map_err(|_| Gone)
    }

    /// The last message.
    pub(crate) async fn end(self, body: TurnBody) {
        // A session that takes nothing more has ended the turn by itself.
        let _ = self.send(FromTurn::Ended { body }).await;
    }

    async fn send(&self, message: FromTurn) -> Result<(), Gone> {
        self.0.send(message).await.map_err(|_| Gone)
    }
}
