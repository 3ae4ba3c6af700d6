//! What signals mean to the supervisor: SIGTERM leaves the workers, SIGINT ends everything, SIGHUP
//! is either, by whether there was a terminal to be closed.

use std::io;

use nix::sys::signal::SigSet;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::control;
use crate::daemon::{Daemon, End};

/// The signals that mean something to the supervisor.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// Whether a hang-up means that our terminal was closed.
    has_terminal: bool,
}

impl Signals {
    /// Catches them from here on.
    pub(crate) fn catch() -> io::Result<Self> {
        let caught = Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            has_terminal: std::fs::File::open("/dev/tty").is_ok(),
        };
        // A mask is inherited: the guard blocks these, so that one that comes before there is a
        // handler waits for it. Workers are to have none.
        SigSet::empty().thread_set_mask()?;
        Ok(caught)
    }

    /// The next one that ends the supervisor. Cancel-safe.
    pub(crate) async fn next(&mut self, daemon: &Daemon) -> End {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return End::Leave,
                _ = self.interrupt.recv() => return End::Interrupt,
                _ = self.hang_up.recv() => {
                    if self.has_terminal {
                        return End::Interrupt;
                    }
                    // What daemons without a terminal take it for.
                    control::reload(daemon);
                }
            }
        }
    }
}
