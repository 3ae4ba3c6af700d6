//! Hands a connection over to a worker, as a transaction: our descriptor stays open until a
//! worker has said that it took its own.

use std::rc::Rc;

use shared::link::ToWorker;
use shared::protocol::{ErrorCode, SessionId};
use tokio::net::UnixStream;
use tracing::warn;

use super::handshake::Greeting;
use crate::daemon::Daemon;
use crate::supervise::{self, Answer, NoAnswer, Offer, State, Unavailable};

/// Workers that are tried before the client is told that it does not work.
const TRIES: usize = 2;

/// The session that a connection named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    /// Of the message.
    pub(super) request_id: String,
    session: SessionId,
    /// Whether the session has to be there already.
    attach: bool,
}

impl Opening {
    /// `session.start`, with an id of the client's choice or a new one.
    pub(super) fn start(request_id: String, session: Option<SessionId>) -> Self {
        Self { request_id, session: session.unwrap_or_default(), attach: false }
    }

    /// `session.attach`
    pub(super) fn attach(request_id: String, session: SessionId) -> Self {
        Self { request_id, session, attach: true }
    }
}

/// Why the client is still ours.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: ErrorCode,
    pub(super) message: String,
}

impl From<Unavailable> for Refusal {
    fn from(cause: Unavailable) -> Self {
        let code = match cause {
            Unavailable::Limit(_) => ErrorCode::SessionLimit,
            Unavailable::Stopping | Unavailable::Failed(_) => ErrorCode::Unavailable,
        };
        Self { code, message: cause.to_string() }
    }
}

/// Hands the connection over to the session's worker, with the `bytes` that nobody answered.
pub(super) async fn hand_over(
    daemon: &Rc<Daemon>,
    opening: Opening,
    greeting: Greeting,
    socket: Rc<UnixStream>,
    bytes: Vec<u8>,
) -> Result<(), Refusal> {
    check(daemon, &opening)?;
    let session_id = opening.session;
    let Greeting { peer, features } = greeting;
    let message = ToWorker::Client { id: 0, session_id, features, peer, len: bytes.len() };
    let offer = Offer { message, socket, bytes: Rc::new(bytes) };
    let (mut tries, mut moves) = (0, 0);
    while tries < TRIES {
        tries += 1;
        let worker = supervise::claim(daemon, session_id).await?;
        match supervise::offer(daemon, &worker, offer.clone()).await {
            Ok(Answer::Taken) => return Ok(()),
            // The session went to another worker while the client was on its way to this one.
            Ok(Answer::Refused { .. }) if has_moved(daemon, &worker, session_id) && moves < TRIES => {
                moves += 1;
                tries -= 1;
                continue;
            }
            Ok(Answer::Refused { code, reason }) => return Err(Refusal { code, message: reason }),
            Err(NoAnswer::LinkEnded) if supervise::is_buried(daemon, &worker).await => continue,
            Err(cause) => warn!(worker, session = %session_id, ?cause, "did not take a client"),
        }
        // It may still take it; no other worker can have the session, and nobody gets a client twice.
        if matches!(daemon.workers.state(&worker), Some(State::Serving { .. })) {
            break;
        }
    }
    Err(Refusal {
        code: ErrorCode::Unavailable,
        message: "the session's worker does not take clients; see scvd's log, or stop the session".into(),
    })
}

fn has_moved(daemon: &Daemon, worker: &str, session: SessionId) -> bool {
    daemon.workers.of_session(session).is_some_and(|now| now != worker)
}

fn check(daemon: &Daemon, opening: &Opening) -> Result<(), Refusal> {
    let session = opening.session;
    if daemon.removing.borrow().contains(&session) {
        return Err(Refusal {
            code: ErrorCode::SessionNotFound,
            message: format!("session {session} is being removed"),
        });
    }
    let exists = || daemon.workers.of_session(session).is_some() || daemon.layout.session(session).path().is_dir();
    if opening.attach && !exists() {
        return Err(Refusal { code: ErrorCode::SessionNotFound, message: format!("there is no session {session}") });
    }
    Ok(())
}
