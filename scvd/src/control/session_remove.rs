//! `session_remove`: a session's processes end, and its data goes.

use std::rc::Rc;
use std::time::Duration;

use shared::fs::{self, Lock};
use shared::layout::Layout;
use shared::protocol::{ErrorCode, SessionId, ids};
use tokio::time::sleep;
use tracing::warn;

use super::status::status;
use super::{Answer, Failure, session_stop};
use crate::daemon::Daemon;

/// A worker that was killed gives its lock back with its last descriptor, moments later.
const LOCK_TRIES: usize = 50;
const LOCK_EVERY: Duration = Duration::from_millis(10);

pub(super) async fn carry_out(daemon: &Rc<Daemon>, session: SessionId) -> Result<Answer, Failure> {
    // From here on nobody gets into it, and a wanted mark does not start it again.
    if !daemon.removing.borrow_mut().insert(session) {
        return Err(Failure::new(ErrorCode::SessionBusy, format!("session {session} is being removed already")));
    }
    let removed = remove(daemon, session).await;
    daemon.removing.borrow_mut().remove(&session);
    daemon.look();
    removed?;
    Ok(status(daemon).into())
}

async fn remove(daemon: &Rc<Daemon>, session: SessionId) -> Result<(), Failure> {
    // Not marked as closed first: a session whose files are damaged has to be removable, too.
    session_stop::end(daemon, session).await?;
    let failed = |cause: std::io::Error| {
        Failure::new(ErrorCode::InternalError, format!("cannot remove session {session}: {cause}"))
    };
    let dir = daemon.layout.session(session);
    if !dir.path().is_dir() {
        return Ok(());
    }
    let _owner = lock(&daemon.layout, session).await?;
    let trash = daemon.layout.trash().join(ids::fresh());
    // One step: whoever opens the session afterwards finds none, and whoever waits for the lock
    // finds that its directory is not at its path any more.
    std::fs::rename(dir.path(), &trash).map_err(failed)?;
    fs::sync_dir(&daemon.layout.sessions()).map_err(failed)?;
    fs::remove(&daemon.layout.wanted_session(session)).map_err(failed)?;
    daemon.workers.forgive(session);
    daemon.hub.gone(session);
    remove_trash(&daemon.layout);
    Ok(())
}

/// None where the lock is no file: nobody can hold it.
async fn lock(layout: &Layout, session: SessionId) -> Result<Option<Lock>, Failure> {
    let path = layout.session(session).lock();
    for _ in 0..LOCK_TRIES {
        match Lock::try_acquire(&path) {
            Ok(Some(lock)) => return Ok(Some(lock)),
            Err(cause) if cause.kind() == std::io::ErrorKind::IsADirectory => return Ok(None),
            _ => {}
        }
        sleep(LOCK_EVERY).await;
    }
    let why = format!("session {session} is in the hands of a process that this supervisor did not start");
    Err(Failure::new(ErrorCode::SessionBusy, why))
}

/// Deletes what was removed, beside everything else; what is left is deleted next time.
pub(crate) fn remove_trash(layout: &Layout) {
    let trash = layout.trash();
    tokio::task::spawn_blocking(move || {
        for removed in std::fs::read_dir(trash).into_iter().flatten().flatten() {
            if let Err(cause) = std::fs::remove_dir_all(removed.path()) {
                warn!("cannot delete {}: {cause}", removed.path().display());
            }
        }
    });
}
