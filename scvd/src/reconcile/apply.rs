//! Carries a plan out.

use std::rc::Rc;
use std::time::Instant;

use tracing::{error, info, warn};

use super::plan::Action;
use crate::control::remove_trash;
use crate::daemon::{Daemon, End};
use crate::error::with_causes;
use crate::{log, supervise};

/// Does one thing, or starts a task that does it.
pub(super) fn apply(daemon: &Rc<Daemon>, action: Action) {
    match action {
        Action::Rebind if daemon.door.is_inherited() => {
            tokio::task::spawn_local(rebind_by_manager(daemon.clone()));
        }
        Action::Rebind => match daemon.door.bind_again() {
            Ok(()) => info!("the socket was gone from its path; bound it again"),
            Err(cause) => error!("cannot bind the socket again: {cause}"),
        },
        Action::Sweep(id) => {
            tokio::task::spawn_local(supervise::sweep(daemon.clone(), id));
        }
        Action::Resume(session) => {
            info!(%session, "starting a session that has work");
            supervise::resume(daemon, session);
        }
        Action::Spawn => supervise::spawn(daemon),
        Action::EndSpare => supervise::end_a_spare(daemon),
        Action::Leave => daemon.end(End::Idle),
        // `once` keeps the time.
        Action::LookAt(_) => {}
    }
}

/// The manager's socket is the manager's to mend; it starts us again with it.
async fn rebind_by_manager(daemon: Rc<Daemon>) {
    let Some(scopes) = &daemon.scopes else { return };
    warn!("the socket is gone from its path; systemd binds it again and starts this supervisor again");
    if let Err(cause) = scopes.restart_socket().await {
        error!("{}", with_causes(&cause));
    }
}

/// What has to be done every minute and on no other occasion.
pub(super) async fn housekeeping(daemon: &Rc<Daemon>) {
    daemon.workers.prune(Instant::now());
    if let Err(cause) = log::rotate(&daemon.layout) {
        error!("cannot rotate {}: {cause}", daemon.layout.log().display());
    }
    remove_trash(&daemon.layout);
    supervise::end_orphans(daemon, supervise::Depth::Family).await;
}
