//! SIGTERM, SIGINT and SIGHUP mean the same to a session's worker: end what runs, say so, leave.

use shared::link::EndReason;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::session::Input;

/// From now on a signal ends the session behind `inputs`. A worker without a session has nothing
/// to end: there the signals do what they always do.
pub(crate) fn end_the_session(inputs: mpsc::Sender<Input>) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::task::spawn_local(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hang_up.recv() => {}
            }
            // Fails when the session is over, and then the worker is about to exit anyway.
            let _ = inputs.send(Input::End(EndReason::Stopped)).await;
        }
    });
    Ok(())
}
