//! The connection ended before the turn did: connect again, or say what became of the session.
//!
//! A worker that died is started again by whoever attaches; a supervisor that died is started
//! again by its guard, by systemd, or by us. The session knows the prompt by its id and the client
//! by the last number it saw, so nothing is run, printed or missed twice.

use std::time::Duration;

use shared::client::Client;
use shared::protocol::SessionId;
use tokio::time::{Instant, sleep};

use super::FEATURES;
use crate::context::Context;
use crate::error::CliError;
use crate::start;

/// A supervisor gives deaf workers 2 s each, in parallel, and a guard waits up to 10 s before it
/// starts one that keeps dying.
const AGAIN_WITHIN: Duration = Duration::from_secs(30);

/// The first wait; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How often in a row a connection may end before anything came over it.
const TRIES: u32 = 5;

/// Connections that were lost without a word from the session in between.
#[derive(Debug, Default)]
pub(super) struct Losses(u32);

impl Losses {
    /// The session said something.
    pub(super) fn heard(&mut self) {
        self.0 = 0;
    }

    /// A new connection; none, if there is no use in another one.
    pub(super) async fn connect(&mut self, context: &Context) -> Option<Client> {
        self.0 += 1;
        if self.0 > TRIES {
            return None;
        }
        let deadline = Instant::now() + AGAIN_WITHIN;
        let mut wait = FIRST_WAIT * self.0;
        // Whatever ended the connection is still ending, as a rule.
        sleep(wait).await;
        loop {
            if let Ok(client) = start::connect(context, "scv-exec", &FEATURES).await {
                return Some(client);
            }
            let was_stopped = context.layout.stopped().exists();
            if was_stopped || Instant::now() >= deadline {
                return None;
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
}

/// The error when it cannot be attached again.
pub(super) fn explain(context: &Context, session_id: SessionId, turn_ran: bool) -> CliError {
    let when = if turn_ran { "while the turn ran" } else { "before the turn started" };
    let what = format!("the connection to session {session_id} ended {when}");
    if context.layout.stopped().exists() {
        return CliError::failed(format!("{what}: the supervisor was stopped"))
            .hint(format!("`scv start`, then `scv exec --session {session_id} …` continues it"));
    }
    CliError::failed(what).hint(format!("`scv exec --session {session_id} …` continues it"))
}
