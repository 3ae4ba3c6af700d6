//! What of the configuration the supervisor needs: `[supervisor]`, and how long closed sessions are
//! kept.

use std::time::Duration;

use shared::config::{Config, Session, Sources, Supervisor};
use shared::layout::Layout;

/// Seconds of a day.
const DAY_SECONDS: u64 = 86_400;

/// The settings in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `supervisor.spare_workers`
    pub(crate) spare_workers: usize,
    /// `supervisor.max_sessions`
    pub(crate) max_sessions: usize,
    /// `supervisor.reconcile_seconds`
    pub(crate) reconcile_every: Duration,
    /// `supervisor.idle_exit_seconds`; none for 0.
    pub(crate) idle_exit: Option<Duration>,
    /// `supervisor.worker_memory_max`, in bytes; none without a limit.
    pub(crate) worker_memory_max: Option<u64>,
    /// `session.keep_closed_days`
    pub(crate) keep_closed: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self::of(&Supervisor::default(), &Session::default())
    }
}

impl Settings {
    fn of(keys: &Supervisor, session: &Session) -> Self {
        let idle_exit = Duration::from_secs(keys.idle_exit_seconds);
        Self {
            spare_workers: keys.spare_workers,
            max_sessions: keys.max_sessions,
            reconcile_every: Duration::from_secs(keys.reconcile_seconds),
            idle_exit: (!idle_exit.is_zero()).then_some(idle_exit),
            worker_memory_max: bytes(&keys.worker_memory_max),
            keep_closed: Duration::from_secs(session.keep_closed_days * DAY_SECONDS),
        }
    }

    /// Reads the home's configuration; on failure: what is wrong, in a sentence without values.
    pub(crate) fn load(layout: &Layout) -> Result<Self, String> {
        match Config::load(&Sources::of(layout)) {
            Ok(config) => Ok(Self::of(&config.supervisor, &config.session)),
            Err(error) => Err(match std::error::Error::source(&error) {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            }),
        }
    }
}

/// A size such as `512M` in bytes, by powers of 1024; none for an empty text.
fn bytes(size: &str) -> Option<u64> {
    let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match size[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_shl(shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        let sizes = [("", None), ("0", Some(0)), ("512", Some(512)), ("3k", Some(3 << 10)), ("2G", Some(2 << 30))];
        for (size, expected) in sizes {
            assert_eq!(bytes(size), expected, "{size}");
        }
    }

    #[test]
    fn a_broken_configuration_is_an_error_that_names_the_key_and_not_the_value() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        assert_eq!(Settings::load(&layout), Ok(Settings::default()));

        std::fs::write(layout.config(), "[supervisor]\nmax_sessions = 7\nidle_exit_seconds = 0\n").unwrap();
        let expected = Settings { max_sessions: 7, idle_exit: None, ..Settings::default() };
        assert_eq!(Settings::load(&layout), Ok(expected));

        std::fs::write(layout.config(), "[supervisor]\nmax_sessions = \"sk-secret\"\n").unwrap();
        let error = Settings::load(&layout).unwrap_err();
        assert!(error.contains("supervisor.max_sessions") && !error.contains("sk-secret"), "{error}");
    }
}
