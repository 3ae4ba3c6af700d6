//! The link to one worker: an owner task that writes, and the hand-overs that wait for an answer.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;

use shared::link::{LinkWriter, ToWorker};
use shared::protocol::ErrorCode;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

/// Messages that wait to be written. A worker that leaves so many unread is deaf.
const OUTBOX: usize = 64;

/// One client, on its way to a worker.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    /// The message; its `len` is that of `bytes`.
    pub(crate) message: ToWorker,
    /// The connection. Ours stays open until the worker has said that it took it.
    pub(crate) socket: Rc<UnixStream>,
    /// What was read from it and not answered.
    pub(crate) bytes: Rc<Vec<u8>>,
}

/// What a worker says to a hand-over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It serves the client now.
    Taken,
    /// It does not.
    Refused {
        /// For programs.
        code: ErrorCode,
        /// The reason, for the client.
        reason: String,
    },
}

/// Something with a descriptor, on its way from one worker to another.
#[derive(Debug)]
pub(super) struct Given {
    /// The message; its `len` is that of `bytes`.
    pub(super) message: ToWorker,
    /// A client's connection, or a session's lock.
    pub(super) descriptor: OwnedFd,
    /// What goes with it.
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
enum Outgoing {
    Given(Vec<Given>),
    Message(ToWorker),
    Client(Offer),
}

/// The sending half of a link.
#[derive(Debug)]
pub(super) struct Link {
    outbox: mpsc::Sender<Outgoing>,
    answers: RefCell<BTreeMap<u64, oneshot::Sender<Answer>>>,
}

impl Link {
    /// Takes the connection to a worker over.
    pub(super) fn new(writer: LinkWriter) -> Self {
        let (outbox, messages) = mpsc::channel(OUTBOX);
        tokio::task::spawn_local(write(writer, messages));
        Self { outbox, answers: RefCell::default() }
    }

    /// Sends a message; false if the worker does not read.
    pub(super) fn send(&self, message: ToWorker) -> bool {
        self.outbox.try_send(Outgoing::Message(message)).is_ok()
    }

    /// Hands a client over. The receiver gives an error if the worker or its link dies before it
    /// has answered.
    pub(super) fn offer(&self, id: u64, offer: Offer) -> Option<oneshot::Receiver<Answer>> {
        self.outbox.try_send(Outgoing::Client(offer)).ok()?;
        let (answer, answered) = oneshot::channel();
        self.answers.borrow_mut().insert(id, answer);
        Some(answered)
    }

    /// Gives a worker a session with its clients; false if it does not read.
    pub(super) fn give(&self, given: Vec<Given>) -> bool {
        self.outbox.try_send(Outgoing::Given(given)).is_ok()
    }

    /// The worker answered hand-over `id`. False for one that nobody waits for any more.
    pub(super) fn answered(&self, id: u64, answer: Answer) -> bool {
        let waiting = self.answers.borrow_mut().remove(&id);
        waiting.is_some_and(|waiting| waiting.send(answer).is_ok())
    }

    /// Nobody waits for the answer to hand-over `id` any more.
    pub(super) fn give_up(&self, id: u64) {
        self.answers.borrow_mut().remove(&id);
    }
}

async fn write(mut writer: LinkWriter, mut messages: mpsc::Receiver<Outgoing>) {
    while let Some(outgoing) = messages.recv().await {
        let written = match outgoing {
            Outgoing::Given(given) => give(&mut writer, given).await,
            Outgoing::Message(message) => writer.send(&message).await,
            Outgoing::Client(offer) => writer.hand_over(&offer.message, offer.socket.as_fd(), &offer.bytes).await,
        };
        if let Err(cause) = written {
            // The reader sees the same end and acts on it.
            debug!("a link broke: {cause}");
            return;
        }
    }
}

async fn give(writer: &mut LinkWriter, given: Vec<Given>) -> io::Result<()> {
    for Given { message, descriptor, bytes } in given {
        writer.hand_over(&message, descriptor.as_fd(), &bytes).await?;
    }
    Ok(())
}
