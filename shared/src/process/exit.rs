//! How a process ended.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;

/// An exit status: a code, a signal, or, where nobody could tell, neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Exit {
    /// The code that the program gave.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

impl Exit {
    /// Code 0.
    pub fn success(self) -> bool {
        self.code == Some(0)
    }
}

impl From<std::process::ExitStatus> for Exit {
    fn from(status: std::process::ExitStatus) -> Self {
        Self { code: status.code(), signal: status.signal() }
    }
}

impl From<rustix::process::WaitIdStatus> for Exit {
    fn from(status: rustix::process::WaitIdStatus) -> Self {
        Self { code: status.exit_status(), signal: status.terminating_signal() }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit status: {code}"),
            (None, Some(signal)) => write!(f, "signal: {signal}"),
            (None, None) => f.write_str("exit status unknown"),
        }
    }
}
