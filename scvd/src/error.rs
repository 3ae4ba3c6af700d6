//! Why the supervisor did not start, and the exit code that tells the guard whether to try again.

use std::io;

use crate::listener::BindError;
use crate::lock::LockError;

/// Exit code of what a restart cannot mend.
pub(crate) const EXIT_CANNOT_START: u8 = 2;
/// Exit code when another supervisor serves the home.
pub(crate) const EXIT_HELD: u8 = 3;

/// Exit code after a stop on purpose under a service manager, which is not to start it again.
pub(crate) const EXIT_STOPPED: u8 = 77;

/// An error and its causes, in one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut sentence = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        sentence = format!("{sentence}: {source}");
        cause = source.source();
    }
    sentence
}

/// Exit code of one that handed over to a successor: its guard watches that one, and where that has
/// died already starts another.
pub(crate) const EXIT_HANDED_OVER: u8 = 4;

/// Why the supervisor did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootError {
    /// Another one serves this home.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The socket cannot be ours.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A configuration that a running supervisor would not change to.
    #[error("{0}")]
    Config(String),
    /// A worker that the supervisor before us speaks to, and we do not.
    #[error("{0}; `scv stop` and `scv start` change to this release, and end what runs")]
    Workers(String),
    /// `scv stop` came before we were up.
    #[error("it was stopped on purpose; `scv start` starts it again")]
    Stopped,
    /// Something else cannot be done.
    #[error("cannot {what}")]
    Io {
        /// What could not be done, to what.
        what: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl BootError {
    /// An error about `what` could not be done.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }

    /// The error and its causes, in one line.
    pub(crate) fn sentence(&self) -> String {
        with_causes(self)
    }

    /// 3 when another one serves the home, 0 when it was told to stop, else 2.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Stopped => 0,
            Self::Lock(LockError::Held { .. }) | Self::Bind(BindError::Taken { .. }) => EXIT_HELD,
            Self::Lock(LockError::Io { .. }) | Self::Bind(_) | Self::Config(_) | Self::Workers(_) | Self::Io { .. } => {
                EXIT_CANNOT_START
            }
        }
    }
}
