//! What is wrong with a configuration: where, which key, and what is allowed.
//!
//! Never the line and never a value: either may hold a key.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A configuration that cannot be used.
#[derive(Debug)]
pub struct ConfigError {
    /// Where it is.
    pub place: Place,
    /// The dotted key, where one is known.
    pub key: Option<String>,
    /// What is wrong with it.
    pub problem: Problem,
}

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the defaults.
    BuiltIn,
    /// In a file; lines count from 1, and 0 is the file as a whole.
    File(PathBuf, usize),
    /// In a variable.
    Variable(String),
    /// In a flag, or in what a client asked for.
    Flag,
}

/// What is wrong.
#[derive(Debug)]
pub enum Problem {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The file is no TOML; the parser's words, without the text.
    Syntax(String),
    /// There is no such key.
    Unknown {
        /// A key that reads like it.
        similar: Option<String>,
    },
    /// The value is not allowed.
    Value {
        /// What is.
        allowed: String,
    },
    /// A project may not do that.
    Project {
        /// What it may do, or where the key belongs.
        allowed: String,
    },
    /// Nothing has that name.
    NoSuchName {
        /// The names that there are.
        names: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => write!(f, "built-in"),
            Self::File(path, 0) => write!(f, "{}", path.display()),
            Self::File(path, line) => write!(f, "{} line {line}", path.display()),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag => write!(f, "flag"),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.as_deref().unwrap_or("a key");
        write!(f, "{}: ", self.place)?;
        match &self.problem {
            Problem::Unreadable(_) => write!(f, "cannot read the configuration"),
            Problem::Syntax(words) => write!(f, "not valid TOML: {words}"),
            Problem::Unknown { similar: None } => write!(f, "there is no key {key}"),
            Problem::Unknown { similar: Some(similar) } => {
                write!(f, "there is no key {key}; did you mean {similar}?")
            }
            Problem::Value { allowed } => write!(f, "{key} has to be {allowed}"),
            Problem::Project { allowed } => write!(f, "a project may not do that to {key}: {allowed}"),
            Problem::NoSuchName { names } => write!(f, "{key} names nothing that is configured; there is {names}"),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}
