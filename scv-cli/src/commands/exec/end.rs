//! How a run of `exec` ended, and what that means to a person and to a script.

use std::time::Duration;

use shared::protocol::server::WireError;
use shared::protocol::{ErrorCode, SessionId};

use crate::error::{CliError, Kind};

/// How it ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    /// The turn was completed; so many calls were denied.
    Completed {
        /// Calls that were denied.
        denied: u32,
    },
    /// The turn failed.
    Failed {
        /// Why, for programs.
        code: ErrorCode,
        /// Why, for people.
        message: String,
    },
    /// The turn was cancelled, and not by us.
    Cancelled,
    /// Ctrl+C.
    Interrupted,
    /// The session could not be opened, or the prompt was not taken.
    Refused(WireError),
    /// No answer to the opening.
    NotOpened(Duration),
    /// The prompt would wait behind others that wait for a person.
    Paused {
        /// Prompts before it.
        waiting: usize,
    },
    /// The session was closed by somebody.
    Closed,
    /// We left, and the session goes on.
    Detached,
    /// The connection ended before the turn did.
    Lost,
}

impl End {
    /// The exit code's kind; none for success.
    fn kind(&self) -> Option<Kind> {
        match self {
            Self::Completed { denied: 0 } | Self::Detached => None,
            Self::Completed { .. } => Some(Kind::Denied),
            Self::Interrupted => Some(Kind::Interrupted),
            Self::Refused(error) => Some(refusal(error.code)),
            Self::Failed { .. }
            | Self::Cancelled
            | Self::NotOpened(_)
            | Self::Paused { .. }
            | Self::Closed
            | Self::Lost => Some(Kind::Failed),
        }
    }

    /// Success, or the error that says what happened.
    pub(super) fn into_result(self, session_id: SessionId) -> Result<(), CliError> {
        let Some(kind) = self.kind() else { return Ok(()) };
        let again = format!("`scv exec --session {session_id} …` continues it");
        let error = match self {
            // Each denial was told when it happened.
            Self::Completed { .. } | Self::Interrupted | Self::Detached => CliError::silent(kind),
            Self::Failed { code: ErrorCode::SessionCrashed, message } => CliError::failed(message).hint(again),
            Self::Failed { message, .. } => CliError::failed(format!("the turn failed: {message}")),
            Self::Cancelled => CliError::failed("the turn was cancelled by another client"),
            Self::Refused(error) => CliError::failed(error.message),
            Self::NotOpened(within) => {
                CliError::failed(format!("the session did not open within {} s", within.as_secs()))
                    .hint("`scv status` tells whether the supervisor is well")
            }
            Self::Paused { waiting } => CliError::failed(format!(
                "session {session_id} is paused, and {waiting} prompts from before wait in it; this one was not added"
            ))
            .hint(format!(
                "`scv sessions resume {session_id}` runs them; `scv sessions rm {session_id}` drops the session"
            )),
            Self::Closed => CliError::failed(format!("session {session_id} was closed")).hint(again),
            Self::Lost => CliError::failed(format!("lost the connection to session {session_id}")).hint(again),
        };
        Err(CliError { kind, ..error })
    }
}

/// What is wrong with the request or the configuration is the user's to mend.
fn refusal(code: ErrorCode) -> Kind {
    match code {
        ErrorCode::InvalidJson
        | ErrorCode::InvalidRequest
        | ErrorCode::NotInitialized
        | ErrorCode::VersionMismatch
        | ErrorCode::Unsupported
        | ErrorCode::SessionNotFound
        | ErrorCode::ProviderError => Kind::Usage,
        ErrorCode::QueueLimit
        | ErrorCode::QueueConflict
        | ErrorCode::ComponentError
        | ErrorCode::DelegationError
        | ErrorCode::ContextLimit
        | ErrorCode::HistoryLimit
        | ErrorCode::ResponseLimit
        | ErrorCode::ToolLimit
        | ErrorCode::StepLimit
        | ErrorCode::InternalError
        | ErrorCode::SessionCrashed
        | ErrorCode::SessionBusy
        | ErrorCode::SessionLimit
        | ErrorCode::Budget
        | ErrorCode::Unavailable
        | ErrorCode::Unknown => Kind::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_documented_exit_code() {
        let refused =
            |code| End::Refused(WireError { request_id: None, code, message: "m".into(), fatal: true, entry: None });
        let failed = |code| End::Failed { code, message: "m".into() };
        let table = [
            (End::Completed { denied: 0 }, 0),
            (End::Completed { denied: 2 }, 3),
            (failed(ErrorCode::ProviderError), 1),
            (failed(ErrorCode::SessionCrashed), 1),
            (End::Cancelled, 1),
            (End::Interrupted, 130),
            (refused(ErrorCode::InvalidRequest), 2),
            (refused(ErrorCode::SessionNotFound), 2),
            (refused(ErrorCode::ProviderError), 2),
            (refused(ErrorCode::SessionLimit), 1),
            (refused(ErrorCode::Unavailable), 1),
            (End::NotOpened(Duration::from_secs(1)), 1),
            (End::Paused { waiting: 2 }, 1),
            (End::Closed, 1),
            (End::Detached, 0),
            (End::Lost, 1),
        ];
        for (end, code) in table {
            let told = format!("{end:?}");
            let result = end.into_result(SessionId::new());
            assert_eq!(result.map_or_else(|error| error.kind.exit_code(), |()| 0), code, "{told}");
        }
    }

    #[test]
    fn a_crash_says_how_to_go_on() {
        let id = SessionId::new();
        let end = End::Failed { code: ErrorCode::SessionCrashed, message: "the worker died".into() };
        let hint = end.into_result(id).unwrap_err().hint.unwrap();
        assert_eq!(hint, format!("`scv exec --session {id} …` continues it"));
    }
}
