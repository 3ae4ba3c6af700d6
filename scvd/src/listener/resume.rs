//! Clients that an earlier supervisor has parked: each goes on where it was.

use std::os::unix::net::UnixStream as StdStream;
use std::rc::Rc;

use tokio::net::UnixStream;
use tracing::warn;

use super::connection;
use super::load::Share;
use crate::daemon::Daemon;
use crate::takeover::Inherited;

/// Serves them.
pub(crate) fn resume(daemon: &Rc<Daemon>, clients: Vec<Inherited>) {
    for mut client in clients {
        let Some(socket) = client.socket.take() else { continue };
        let socket = StdStream::from(socket);
        let stream = socket.set_nonblocking(true).and_then(|()| UnixStream::from_std(socket));
        match (stream, Share::take(daemon)) {
            (Ok(stream), Some(share)) => {
                tokio::task::spawn_local(connection::go_on(daemon.clone(), stream, share, client));
            }
            (stream, _) => warn!("a client could not be taken over: {:?}", stream.err()),
        }
    }
}
