//! `session_stop`: a session's processes end, its data stays.

use std::io;
use std::rc::Rc;

use shared::fs;
use shared::protocol::{ErrorCode, SessionId};

use super::status::status;
use super::{Answer, Failure, closed};
use crate::daemon::Daemon;
use crate::supervise;

pub(super) async fn carry_out(daemon: &Rc<Daemon>, session: SessionId) -> Result<Answer, Failure> {
    stop(daemon, session).await?;
    Ok(status(daemon).into())
}

/// Ends the session's worker, if it has one. Fails if there is no such session.
pub(super) async fn end(daemon: &Rc<Daemon>, session: SessionId) -> Result<(), Failure> {
    let was_live = supervise::end_session(daemon, session).await?;
    if !was_live && !daemon.layout.session(session).path().is_dir() {
        return Err(Failure::new(ErrorCode::SessionNotFound, format!("there is no session {session}")));
    }
    Ok(())
}

/// Ends the session's worker and marks the session as closed.
async fn stop(daemon: &Rc<Daemon>, session: SessionId) -> Result<(), Failure> {
    // First: a session that is wanted would be started again as soon as its worker is gone.
    let mark = daemon.layout.wanted_session(session);
    fs::remove(&mark).map_err(|cause| {
        Failure::new(ErrorCode::InternalError, format!("cannot remove {}: {cause}", mark.display()))
    })?;
    end(daemon, session).await?;
    // The worker does this itself; one that was killed did not, and one that was not there could not.
    match closed::mark_closed(&daemon.layout, session) {
        Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
            let why = format!("session {session} is in the hands of a process that this supervisor did not start");
            return Err(Failure::new(ErrorCode::SessionBusy, why));
        }
        // A session that never accepted anything has no meta file, and nothing to close.
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => {
            let why = format!("cannot mark session {session} as closed: {cause}");
            return Err(Failure::new(ErrorCode::InternalError, why));
        }
        Ok(()) => {}
    }
    daemon.workers.forgive(session);
    Ok(())
}
