//! What a person is told when something failed: what, its causes, what to do, and the exit code.

use std::error::Error;
use std::io;

use shared::client::ClientError;
use shared::config::{ConfigError, Place, Problem};

/// How a command ended, other than well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What was asked for could not be done.
    Failed,
    /// The command line or the configuration is wrong.
    Usage,
    /// A needed approval was denied.
    Denied,
    /// Ctrl+C.
    Interrupted,
    /// Nobody reads our output any more.
    Pipe,
}

impl Kind {
    /// The documented exit code.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Denied => 3,
            Self::Interrupted => 130,
            // What a shell shows of a program that SIGPIPE ended.
            Self::Pipe => 141,
        }
    }
}

/// An error for people.
#[derive(Debug)]
pub(crate) struct CliError {
    /// Decides the exit code.
    pub kind: Kind,
    /// What could not be done, to what; empty where everything has been said.
    pub what: String,
    /// Why.
    pub source: Option<Box<dyn Error>>,
    /// What to do.
    pub hint: Option<String>,
}

impl CliError {
    /// Something that could not be done.
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, what: what.into(), source: None, hint: None }
    }

    /// A wrong command line or configuration.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, ..Self::failed(what) }
    }

    /// An end that needs no more words.
    pub(crate) fn silent(kind: Kind) -> Self {
        Self { kind, ..Self::failed("") }
    }

    /// With its cause.
    pub(crate) fn because(self, source: impl Error + 'static) -> Self {
        Self { source: Some(Box::new(source)), ..self }
    }

    /// With what to do.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl From<ClientError> for CliError {
    fn from(mut error: ClientError) -> Self {
        let hint = error.hint().map(String::from);
        let what = error.to_string();
        let source: Option<Box<dyn Error>> = match &mut error {
            ClientError::Connect { source, .. } | ClientError::Broken(source) => {
                Some(Box::new(std::mem::replace(source, io::ErrorKind::Other.into())))
            }
            // serde quotes values in its messages.
            _ => None,
        };
        Self { kind: Kind::Failed, what, source, hint }
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        let hint = match (&error.problem, &error.place) {
            (Problem::Project { .. }, Place::File(path, _)) => format!("remove the key from {}", path.display()),
            (Problem::Unreadable(_), Place::File(path, _)) => format!("look at {}", path.display()),
            (_, Place::Variable(name)) => format!("correct or unset {name}"),
            _ => "correct it, then run `scv config check`".into(),
        };
        let what = error.to_string();
        let source = match error.problem {
            Problem::Unreadable(error) => Some(Box::new(error) as Box<dyn Error>),
            _ => None,
        };
        Self { kind: Kind::Usage, what, source, hint: Some(hint) }
    }
}

/// A failed write to stdout.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::silent(Kind::Pipe),
            _ => Self::failed("cannot write to the standard output").because(error),
        }
    }
}
