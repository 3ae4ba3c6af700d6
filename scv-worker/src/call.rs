//! One call while it runs: what it gets, and how it can fail. Everything that carries out a call
//! uses this and nothing else of the tools.

use shared::protocol::server::ToolErrorKind;
use tokio_util::sync::CancellationToken;

/// What a running call gets.
#[derive(Clone, Debug)]
pub(crate) struct CallContext {
    /// Set when the turn is cancelled: end what runs, then return [`ToolError::Cancelled`].
    pub cancel: CancellationToken,
    /// Where lines for people go.
    pub progress: Progress,
}

/// What is kept of a progress line until it is masked: far more than is shown of it.
const UNMASKED_LINE_BYTES: usize = 4 << 10;

/// Takes progress lines of a call; never waits, and drops what nobody can read in time.
#[derive(Clone, Debug)]
pub(crate) struct Progress(tokio::sync::mpsc::Sender<String>);

impl Progress {
    /// Lines go to `sender`.
    pub(crate) fn new(sender: tokio::sync::mpsc::Sender<String>) -> Self {
        Self(sender)
    }

    /// Shows `line`. It is cut to the protocol's limit only after known secrets were masked in it:
    /// half a key would not be recognised.
    pub(crate) fn line(&self, line: &str) {
        let line = shared::text::one_line(line, UNMASKED_LINE_BYTES);
        if !line.is_empty() {
            // A full channel means that people see enough already.
            let _ = self.0.try_send(line);
        }
    }
}

/// A call that gave no output. The text is for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ToolError {
    /// The arguments are not allowed; nothing was run.
    #[error("{0}")]
    Invalid(String),
    /// What it needs is not there.
    #[error("{0}")]
    Unavailable(String),
    /// A limit was reached.
    #[error("{0}")]
    Limit(String),
    /// Somebody or the policy said no.
    #[error("{0}")]
    Denied(String),
    /// The turn was cancelled; what ran was ended.
    #[error("{0}")]
    Cancelled(String),
    /// No tool of that name.
    #[error("{0}")]
    Unknown(String),
    /// It ran and failed.
    #[error("{0}")]
    Failed(String),
}

impl ToolError {
    /// As the wire names it.
    pub(crate) fn kind(&self) -> ToolErrorKind {
        match self {
            Self::Invalid(_) => ToolErrorKind::InvalidArguments,
            Self::Unavailable(_) => ToolErrorKind::Unavailable,
            Self::Limit(_) => ToolErrorKind::Limit,
            Self::Denied(_) => ToolErrorKind::Denied,
            Self::Cancelled(_) => ToolErrorKind::Cancelled,
            Self::Unknown(_) => ToolErrorKind::UnknownTool,
            Self::Failed(_) => ToolErrorKind::Failed,
        }
    }
}
