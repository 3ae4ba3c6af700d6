//! `daemon.control`: one file a command, the same name on every layer.

mod closed;
mod delegation_kill;
mod delegations;
mod figures;
mod reload;
mod session_remove;
mod session_stop;
mod sessions;
mod status;
mod stop;
mod watch;

use std::rc::Rc;

use shared::protocol::ErrorCode;
use shared::protocol::control::{Command, Status};
use tokio::sync::oneshot;

use crate::daemon::Daemon;
use crate::supervise::Unavailable;

pub(crate) use reload::reload;
pub(crate) use session_remove::remove_trash;
pub(crate) use status::status;
pub(crate) use watch::{Hub, Watcher};

/// What a command gives.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status after it.
    pub(crate) status: Box<Status>,
    /// Dropped once the client has the answer; a supervisor that stops waits for that.
    pub(crate) farewell: Option<oneshot::Sender<()>>,
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        Self { status: Box::new(status), farewell: None }
    }
}

/// Why a command was not carried out.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl Failure {
    fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<Unavailable> for Failure {
    fn from(cause: Unavailable) -> Self {
        Self::new(ErrorCode::Unavailable, cause.to_string())
    }
}

/// Carries a command out.
pub(crate) async fn carry_out(daemon: &Rc<Daemon>, command: Command) -> Result<Answer, Failure> {
    match command {
        Command::Status => Ok(status::status(daemon).into()),
        Command::Reload => reload::carry_out(daemon),
        Command::Delegations { all } => Ok(delegations::delegations(daemon, all).into()),
        Command::DelegationKill { handle, orphans } => delegation_kill::carry_out(daemon, handle, orphans).await,
        Command::Sessions(list) => Ok(sessions::sessions(daemon, &list).into()),
        Command::SessionStop { session_id } => session_stop::carry_out(daemon, session_id).await,
        Command::SessionRemove { session_id } => session_remove::carry_out(daemon, session_id).await,
        Command::Stop => stop::carry_out(daemon).await,
        // `watch` makes a stream of the connection and `restart` gives it away, both the listener's.
        Command::Watch { .. } | Command::Restart { .. } | Command::Unknown => {
            Err(Failure::new(ErrorCode::Unsupported, "this supervisor does not know that action"))
        }
    }
}
