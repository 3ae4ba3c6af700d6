//! What one check found, and what to do about it.

use serde::Serialize;

/// How well something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// As it should be.
    Ok,
    /// It works, with less than it could.
    Warn,
    /// It does not work.
    Fail,
}

impl State {
    /// As people read it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One line of the report. Never holds a secret: it is meant to be sent to others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// What was looked at.
    pub(super) check: &'static str,
    /// How it is.
    pub(super) state: State,
    /// What was found.
    pub(super) says: String,
    /// What a person can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) todo: Option<String>,
}

impl Finding {
    /// As it should be.
    pub(super) fn ok(check: &'static str, says: impl Into<String>) -> Self {
        Self { check, state: State::Ok, says: says.into(), todo: None }
    }

    /// It works, with less than it could.
    pub(super) fn warn(check: &'static str, says: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { check, state: State::Warn, says: says.into(), todo: Some(todo.into()) }
    }

    /// It does not work.
    pub(super) fn fail(check: &'static str, says: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { check, state: State::Fail, says: says.into(), todo: Some(todo.into()) }
    }

    /// What an error says, as a failure.
    pub(super) fn error(check: &'static str, error: &crate::error::CliError) -> Self {
        let mut says = error.what.clone();
        let mut cause = error.source.as_deref();
        while let Some(error) = cause {
            says = format!("{says}: {error}");
            cause = error.source();
        }
        Self { check, state: State::Fail, says, todo: error.hint.clone() }
    }
}
