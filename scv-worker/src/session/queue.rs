//! Waiting prompts: change, move, remove. An answer that names an older revision gets the entry
//! as it is now.

use shared::protocol::ErrorCode;
use shared::protocol::client::{QueueMove, QueueRemove, QueueUpdate};
use shared::protocol::server::{QueueEntry, Reply, ServerEvent, SessionBody, WireError};

use super::inbox::{Refusal, check_prompt};
use super::told::Durable;
use super::{ClientId, Session};

impl Session {
    /// `queue.update`
    pub(super) fn queue_update(&mut self, id: ClientId, update: QueueUpdate) -> Result<(), Refusal> {
        let Some((_, mut entry)) = self.current(id, &update.request_id, &update.queue_id, update.revision)? else {
            return Ok(());
        };
        check_prompt(&update.prompt, entry.attachments.len())?;
        entry.prompt = update.prompt;
        entry.revision += 1;
        self.tell_queue(id, &update.request_id, SessionBody::QueueUpdated { entry })
    }

    /// `queue.move`
    pub(super) fn queue_move(&mut self, id: ClientId, moved: &QueueMove) -> Result<(), Refusal> {
        let Some((from, mut entry)) = self.current(id, &moved.request_id, &moved.queue_id, moved.revision)? else {
            return Ok(());
        };
        let last = self.state.queue.len() - 1;
        let position = match &moved.before_queue_id {
            None => last,
            Some(before) => {
                let (place, _) = self
                    .state
                    .queued(before)
                    .ok_or_else(|| Refusal::invalid("no prompt of the id in before_queue_id waits"))?;
                // Places are counted without the entry that moves.
                if place > from { place - 1 } else { place }
            }
        };
        entry.revision += 1;
        self.tell_queue(id, &moved.request_id, SessionBody::QueueMoved { entry, position })
    }

    /// `queue.remove`
    pub(super) fn queue_remove(&mut self, id: ClientId, remove: &QueueRemove) -> Result<(), Refusal> {
        let Some((_, entry)) = self.current(id, &remove.request_id, &remove.queue_id, remove.revision)? else {
            return Ok(());
        };
        self.tell_queue(id, &remove.request_id, SessionBody::QueueRemoved { queue_id: entry.queue_id })
    }

    fn tell_queue(&mut self, id: ClientId, request_id: &str, body: SessionBody) -> Result<(), Refusal> {
        self.tell_session(Vec::new(), body, Some(id.qualify(request_id)), Durable::Yes)
            .map_err(|error| Refusal::unkept("that", &error))?;
        self.say_state();
        Ok(())
    }

    /// The entry at the client's revision; on a conflict the client was answered.
    fn current(
        &self,
        id: ClientId,
        request_id: &str,
        queue_id: &str,
        revision: u64,
    ) -> Result<Option<(usize, QueueEntry)>, Refusal> {
        let Some((place, queued)) = self.state.queued(queue_id) else {
            return Err(Refusal::new(ErrorCode::QueueConflict, "no prompt of that id waits; it may run already"));
        };
        let entry = queued.entry();
        if entry.revision == revision {
            return Ok(Some((place, entry)));
        }
        self.answer(
            id,
            &ServerEvent::Reply(Reply::Error(WireError {
                request_id: Some(request_id.to_owned()),
                code: ErrorCode::QueueConflict,
                message: "the prompt was changed by somebody else; here it is as it is now".to_owned(),
                fatal: false,
                entry: Some(entry),
            })),
        );
        Ok(None)
    }
}
