//! `stop`: everything ends, then the client is told, then the supervisor leaves.

use std::rc::Rc;

use shared::protocol::ErrorCode;
use tokio::sync::oneshot;

use super::status::status;
use super::{Answer, Failure};
use crate::daemon::{Daemon, End, Farewell};

pub(super) async fn carry_out(daemon: &Rc<Daemon>) -> Result<Answer, Failure> {
    let (ended, has_ended) = oneshot::channel();
    let (farewell, said) = oneshot::channel();
    daemon.end(End::Stop(Farewell { ended, said }));
    if has_ended.await.is_err() {
        return Err(Failure::new(ErrorCode::Unavailable, "the supervisor is ending already"));
    }
    Ok(Answer { farewell: Some(farewell), ..status(daemon).into() })
}
