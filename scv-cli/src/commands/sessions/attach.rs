//! `scv sessions attach`: shows what happens in a session, and answers what it asks.

use clap::Args;
use shared::protocol::SessionId;

use crate::commands::exec;
use crate::context::{Context, block_on};
use crate::error::CliError;
use crate::start;

use super::Named;

/// `scv sessions attach`
#[derive(Debug, Args)]
pub(crate) struct Attach {
    #[command(flatten)]
    named: Named,
}

impl Attach {
    /// Follows it until it is closed or Ctrl+C is pressed; the session goes on.
    pub(super) fn run(&self, context: &Context) -> Result<(), CliError> {
        block_on(async {
            let session: SessionId = {
                let mut client = start::connect(context, "scv-sessions", &[]).await?;
                self.named.resolve(&mut client).await?
            };
            exec::attach(context, session, self.named.json).await
        })
    }
}
