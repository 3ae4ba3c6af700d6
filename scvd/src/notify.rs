//! Tells whoever started the supervisor how that went.
//!
//! A client or the guard reads one line from stdout: `ready`, or `error: ` and a sentence. The
//! service manager is told through its socket. No line and the end of the pipe: it died.

use std::fs::OpenOptions;
use std::io::{self, Write as _};

use sd_notify::NotifyState;
use tracing::debug;

/// The supervisor serves clients.
pub(crate) fn ready() {
    say("ready");
    tell_manager(NotifyState::Ready);
}

/// The supervisor could not start.
pub(crate) fn failed(sentence: &str) {
    say(&format!("error: {sentence}"));
}

/// The supervisor leaves.
pub(crate) fn stopping() {
    tell_manager(NotifyState::Stopping);
}

fn say(line: &str) {
    // Nobody may be listening, and that is no reason not to start.
    let said = writeln!(io::stdout(), "{line}").and_then(|()| io::stdout().flush()).and_then(|()| close_stdout());
    if let Err(cause) = said {
        debug!("cannot tell on stdout: {cause}");
    }
}

/// From here on nothing that we or our workers do keeps the reader of the line waiting.
fn close_stdout() -> io::Result<()> {
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    Ok(nix::unistd::dup2_stdout(null)?)
}

fn tell_manager(state: NotifyState<'_>) {
    if let Err(cause) = sd_notify::notify(&[state]) {
        debug!("cannot tell the service manager: {cause}");
    }
}
