//! What a user makes of an event.

use std::time::Duration;

use serde_json::{Value, json};

use super::user::{Entry, Talk, User};
use crate::script;
use crate::truth::Heard;

/// Refused for now: the session may be leaving, or the disk may be full.
const FOR_NOW: [&str; 4] = ["unavailable", "internal_error", "queue_limit", "session_busy"];

impl User {
    /// Takes an event.
    pub(super) fn told(&mut self, talk: &mut Talk, event: &Value) {
        let text = |field: &str| event[field].as_str().unwrap_or_default();
        let kind = text("type");
        if !["assistant.delta", "tool.progress"].contains(&kind) {
            self.say(event);
        }
        let asked = talk.starts.iter().find(|(id, ..)| id == text("request_id")).map(|(_, n, again)| (*n, *again));
        match talk.follow.hear(event, asked.is_some_and(|(_, again)| again)) {
            Heard::Wrong(why) => self.stage.truth.violation(format!("{}, session {}: {why}", self.name, self.session)),
            Heard::New => self.stage.truth.told(&self.session, talk.follow.last, event),
            Heard::Known => {}
        }
        let of_turn = talk.turns.iter().find(|(id, _)| id == text("turn_id")).map(|(_, number)| *number);
        let prompt = of_turn.or(asked.map(|(number, _)| number));
        match kind {
            "turn.started" => {
                talk.running = Some(text("turn_id").to_owned());
                talk.turns.extend(prompt.map(|number| (text("turn_id").to_owned(), number)));
            }
            "turn.completed" | "turn.cancelled" | "turn.failed" => {
                talk.running.take_if(|running| running == text("turn_id"));
                if let Some(number) = prompt {
                    let how = format!("{kind} {}", text("code"));
                    self.stage.truth.ended(number, text("turn_id"), how.trim_end());
                    self.settled(number);
                }
            }
            "queue.snapshot" => {
                talk.paused = event["paused"] == true;
                talk.queue = event["entries"].as_array().into_iter().flatten().filter_map(entry).collect();
            }
            "queue.enqueued" | "queue.updated" | "queue.moved" => {
                if let Some(entry) = entry(&event["entry"]) {
                    talk.queue.retain(|queued| queued.queue_id != entry.queue_id);
                    // Where it is matters to nobody here.
                    talk.queue.push(entry);
                }
            }
            "queue.dequeued" => {
                let place = talk.queue.iter().position(|queued| queued.queue_id == text("queue_id"));
                if let Some(place) = place {
                    talk.turns.push((text("turn_id").to_owned(), talk.queue.remove(place).number));
                }
            }
            "queue.removed" => {
                let place = talk.queue.iter().position(|queued| queued.queue_id == text("queue_id"));
                if let Some(place) = place {
                    let number = talk.queue.remove(place).number;
                    self.withdrawn(number);
                }
            }
            "approval.requested" => {
                let approved = self.random.u8(..10) > 0;
                talk.connection.send(json!({"type": "approval.resolve", "session_id": self.session,
                    "approval_id": event["approval_id"], "approved": approved}));
            }
            "tool.completed" if event["success"] == true => {
                let mut parts = text("call_id").trim_start_matches("call-").split('-');
                let call = (parts.next().and_then(|n| n.parse().ok()), parts.next().and_then(|n| n.parse().ok()));
                if let (Some(number), Some(step)) = call {
                    // What these did can be looked at.
                    let leaves_a_mark = ["bash", "write"].contains(&text("name"));
                    self.stage.truth.succeeded((number, step), leaves_a_mark);
                }
            }
            "error" => self.refused(talk, event, asked.map(|(number, _)| number)),
            _ => {}
        }
    }

    fn refused(&mut self, talk: &mut Talk, event: &Value, prompt: Option<u64>) {
        let Some(number) = prompt else { return };
        let withdrawing = self.stage.truth.state().prompts.get(&number).is_some_and(|prompt| prompt.withdrawing);
        match event["code"].as_str() {
            Some("invalid_request") if withdrawing => self.withdrawn(number),
            Some(code) if FOR_NOW.contains(&code) => {
                std::thread::sleep(Duration::from_millis(50));
                self.send_again(talk, number);
            }
            // A file that came with it could not be kept; its cause is the full disk.
            Some("invalid_request") if event.to_string().contains("cannot keep the attachment") => {
                std::thread::sleep(Duration::from_millis(50));
                self.send_again(talk, number);
            }
            _ => self.stage.truth.violation(format!("prompt {number} was refused: {event}")),
        }
    }

    fn withdrawn(&mut self, number: u64) {
        self.stage.truth.withdrawn(number);
        self.settled(number);
    }
}

fn entry(entry: &Value) -> Option<Entry> {
    Some(Entry {
        queue_id: entry["queue_id"].as_str()?.to_owned(),
        revision: entry["revision"].as_u64()?,
        number: script::number(entry["prompt"].as_str()?)?,
    })
}
