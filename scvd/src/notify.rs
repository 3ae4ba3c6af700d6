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
    // A service's standard output is its journal, where nobody waits for the word.
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        say("ready");
    }
    tell_manager(NotifyState::Ready);
}

/// Tells the service manager for ever that this process's one loop turns, if it wants to know.
pub(crate) async fn watchdog() {
    let Some(every) = sd_notify::watchdog_enabled() else { return };
    let mut tick = tokio::time::interval(every / 2);
    loop {
        tick.tick().await;
        tell_manager(NotifyState::Watchdog);
    }
}

/// The supervisor could not start.
pub(crate) fn failed(sentence: &str) {
    say(&format!("error: {sentence}"));
}

/// Another process is in charge from now on.
pub(crate) fn main_pid(pid: Option<u32>) {
    if let Some(pid) = pid {
        tell_manager(NotifyState::MainPid(pid));
    }
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
