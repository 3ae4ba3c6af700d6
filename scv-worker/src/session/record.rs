//! What the journal holds: everything that must outlive a worker, in the order in which it happened.
//!
//! Events are kept as clients were told them; the other records are what only the session needs.

use serde::{Deserialize, Serialize};
use shared::protocol::client::Attachment;
use shared::protocol::server::{SessionEvent, TurnEvent, Usage};
use uuid::Uuid;

use super::state::State;
use crate::provider::Item;

/// One line of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    /// A prompt was accepted. Durable before anybody is told.
    Prompt(Prompt),
    /// A waiting prompt becomes the running turn.
    Begin {
        /// When, in milliseconds since 1970.
        at: u64,
        /// The turn.
        turn_id: String,
        /// The prompt.
        queue_id: String,
    },
    /// An event of a turn.
    Turn {
        /// When, in milliseconds since 1970.
        at: u64,
        /// As told.
        event: TurnEvent,
    },
    /// An event outside a turn.
    Session {
        /// When, in milliseconds since 1970.
        at: u64,
        /// As told.
        event: SessionEvent,
    },
    /// One whole response of the provider.
    Response {
        /// What the next request repeats.
        items: Vec<Item>,
        /// What it cost.
        usage: Usage,
    },
    /// An approval was answered. Durable before the call goes on.
    Approval {
        /// The approval.
        approval_id: String,
        /// The answer.
        approved: bool,
        /// `client`, `timeout`, `cancel`.
        by: String,
    },
    /// The queue was paused or resumed.
    Paused {
        /// Whether waiting prompts stay waiting.
        paused: bool,
    },
    /// Conversations with agents, whenever they change.
    Conversations {
        /// As the agents' own code wrote it.
        snapshot: serde_json::Value,
    },
    /// Every number up to `seq` may have been used.
    Ceiling {
        /// The number.
        seq: u64,
    },
    /// All that came before, when the older part of the journal was dropped.
    Snapshot {
        /// The state after the dropped records.
        state: Box<State>,
    },
    /// A record too large for a line; its text lies in `blobs/`.
    Blob {
        /// Its name there.
        sha256: String,
    },
}

/// An accepted prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Prompt {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// Its id in the queue; it has one even if it never waits.
    pub queue_id: String,
    /// The client's id of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_id: Option<Uuid>,
    /// The request, as other clients see it: `client:<n>:<id>`.
    pub request_id: String,
    /// The name of the client.
    pub submitter: String,
    /// What the user said.
    pub text: String,
    /// Files that came with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
}

#[cfg(test)]
mod tests {
    use shared::registry::Entry;

    use super::*;

    #[test]
    fn what_is_for_people_reads_as_an_entry_of_the_transcript() {
        let prompt = Prompt {
            at: 1,
            queue_id: "q".into(),
            prompt_id: None,
            request_id: "client:1:r".into(),
            submitter: "ann".into(),
            text: "hi".into(),
            attachments: Vec::new(),
        };
        let entry = serde_json::to_value(Record::Prompt(prompt)).and_then(serde_json::from_value::<Entry>).unwrap();
        assert_eq!(entry, Entry::Prompt { at: 1, submitter: "ann".into(), text: "hi".into() });
        let event: TurnEvent = serde_json::from_value(serde_json::json!({"type": "turn.cancelled", "request_id": "r",
            "session_id": shared::protocol::SessionId::new(), "turn_id": "t", "seq": 1}))
        .unwrap();
        let record = Record::Turn { at: 2, event: event.clone() };
        let entry = serde_json::to_value(record).and_then(serde_json::from_value::<Entry>).unwrap();
        assert_eq!(entry, Entry::Turn { at: 2, event });
        let ceiling = serde_json::to_value(Record::Ceiling { seq: 1 }).and_then(serde_json::from_value::<Entry>);
        assert_eq!(ceiling.unwrap(), Entry::Other);
    }
}
