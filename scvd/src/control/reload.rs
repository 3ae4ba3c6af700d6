//! `reload`: reads the configuration again. One that is broken changes nothing and is said.

use std::rc::Rc;

use shared::protocol::ErrorCode;
use tracing::{error, info};

use super::status::status;
use super::{Answer, Failure};
use crate::daemon::Daemon;
use crate::settings::Settings;

pub(super) fn carry_out(daemon: &Rc<Daemon>) -> Result<Answer, Failure> {
    reload(daemon);
    match daemon.config_error.borrow().as_ref() {
        Some(reason) => {
            Err(Failure::new(ErrorCode::InvalidRequest, format!("{reason}; the last good one stays in force")))
        }
        None => Ok(status(daemon).into()),
    }
}

/// Takes over what the configuration says now, if it can be read.
pub(crate) fn reload(daemon: &Daemon) {
    let error = match Settings::load(&daemon.layout) {
        Ok(settings) => {
            info!(?settings, "read the configuration again");
            *daemon.settings.borrow_mut() = settings;
            None
        }
        Err(reason) => {
            error!("{reason}; the last good configuration stays in force");
            Some(reason)
        }
    };
    *daemon.config_error.borrow_mut() = error;
    daemon.look();
}
