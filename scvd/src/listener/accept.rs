//! The accept loop. Nothing ends it: not a full table of descriptors, not a stranger.

use std::fs::File;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use shared::protocol::{ErrorCode, ServerEvent};
use tokio::net::UnixStream;
use tracing::{debug, error, warn};

use super::connection;
use super::load::Share;
use crate::daemon::Daemon;

/// Without a single descriptor left, the next try is after a connection has closed, or this.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Accepts for as long as the supervisor runs.
pub(crate) async fn accept_forever(daemon: Rc<Daemon>) {
    let mut reserve = File::open("/dev/null").ok();
    loop {
        // Whoever connects meanwhile waits in the queue, for us or for our successor.
        daemon.parking.open().await;
        let Some(listener) = daemon.door.listener() else { return };
        let accepted = tokio::select! {
            () = daemon.parking.begun() => continue,
            () = daemon.door.changed() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => welcome(&daemon, stream),
            Err(cause) if is_full(&cause) => {
                // With the reserve there is one descriptor to say so on.
                if reserve.take().is_some()
                    && let Ok(Ok((stream, _))) = tokio::time::timeout(RETRY_AFTER, listener.accept()).await
                {
                    refuse(&stream, "there are too many connections");
                }
                reserve = File::open("/dev/null").ok();
                if reserve.is_none() {
                    warn!("no file descriptor is left: {cause}");
                    let _ = tokio::time::timeout(RETRY_AFTER, daemon.connections.closed.notified()).await;
                }
            }
            Err(cause) => {
                error!("cannot accept a connection: {cause}");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

fn welcome(daemon: &Rc<Daemon>, stream: UnixStream) {
    if !is_ours(&stream) {
        return;
    }
    match Share::take(daemon) {
        Some(share) => {
            tokio::task::spawn_local(connection::serve(daemon.clone(), stream, share));
        }
        None => refuse(&stream, "there are too many connections"),
    }
}

/// The mode of the socket keeps others out; this does where somebody changed it.
fn is_ours(stream: &UnixStream) -> bool {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == rustix::process::geteuid().as_raw() => true,
        Ok(peer) => {
            warn!(uid = peer.uid(), "closed a connection of another user");
            false
        }
        Err(cause) => {
            debug!("closed a connection of an unknown user: {cause}");
            false
        }
    }
}

/// One line, if it fits into the socket at once; it always does for a client that just came.
fn refuse(stream: &UnixStream, why: &str) {
    let line = ServerEvent::fatal(None, ErrorCode::Unavailable, format!("{why}; try again later")).to_line();
    if let Err(cause) = stream.try_write(&line) {
        debug!("cannot refuse a connection: {cause}");
    }
}
