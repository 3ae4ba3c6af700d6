//! Marks of live conversations, one file each, named after the program's own id.

use std::io;
use std::path::PathBuf;

use serde::Serialize;
use shared::process::Identity;
use shared::protocol::SessionId;

use super::Conversation;

/// Files that keep `scv agents gc` from removing transcripts of live conversations.
pub(crate) struct Markers {
    /// `state/conversations`
    pub dir: PathBuf,
    /// The session that they name.
    pub session: SessionId,
    /// The process that they name.
    pub owner: Identity,
}

#[derive(Serialize)]
struct Marker<'a> {
    agent: &'a str,
    owner: &'a Identity,
    session: SessionId,
}

impl Markers {
    fn path(&self, thread: &str) -> PathBuf {
        self.dir.join(format!("{thread}.json"))
    }

    pub(super) fn write(&self, conversation: &Conversation) {
        let marker = Marker { agent: &conversation.agent, owner: &self.owner, session: self.session };
        let written = serde_json::to_vec(&marker).map_err(io::Error::from).and_then(|content| {
            shared::fs::replace(&self.path(&conversation.thread), &content, shared::fs::Sync::Lazy)
        });
        if let Err(error) = written {
            // Without it a transcript of at least an hour's age may be collected; the turn goes on.
            tracing::warn!(%error, conversation = conversation.handle, "cannot write a conversation marker");
        }
    }

    pub(super) fn remove(&self, conversation: &Conversation) {
        if let Err(error) = shared::fs::remove(&self.path(&conversation.thread)) {
            tracing::warn!(%error, conversation = conversation.handle, "cannot remove a conversation marker");
        }
    }
}
