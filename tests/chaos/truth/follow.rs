//! Numbers of events, as one client sees them: up by one, but for what a bracket announced.

use serde_json::Value;

/// What a client has seen of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Follow {
    /// The last number that it was told.
    pub last: u64,
    /// The end of the newest bracket: numbers up to it may jump.
    to: u64,
    /// A number that an answer about an earlier prompt named: the state, or the next event itself.
    named: Option<u64>,
}

/// What a number says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The event is new.
    New,
    /// It is a repeat that the protocol has: the answer to a prompt that was sent again, an open
    /// approval, the text so far.
    Known,
    /// It does not follow.
    Wrong(String),
}

impl Follow {
    /// A connection that was told everything up to `last`.
    pub(crate) fn after(last: u64) -> Self {
        Self { last, to: last, named: None }
    }

    /// Takes an event; `again`: it answers a prompt that was sent again.
    pub(crate) fn hear(&mut self, event: &Value, again: bool) -> Heard {
        if event["type"] == "session.attached" {
            self.to = event["to_seq"].as_u64().unwrap_or_default().max(self.to);
            return Heard::Known;
        }
        let Some(seq) = event["seq"].as_u64() else { return Heard::Known };
        let next = self.last.max(self.to) + 1;
        if again && seq != next {
            return Heard::Known;
        }
        if again {
            self.named = Some(seq);
            self.last = seq;
            return Heard::New;
        }
        let repeats = match event["type"].as_str() {
            Some("approval.requested") => seq <= self.last,
            Some("assistant.delta") => seq <= self.last.max(self.to),
            _ => false,
        };
        if repeats {
            return Heard::Known;
        }
        let follows = if seq <= self.to { seq > self.last } else { seq == next || self.named == Some(seq) };
        let last = std::mem::replace(&mut self.last, seq);
        self.named = None;
        if !follows {
            return Heard::Wrong(format!("event {seq} came after {last} (bracket up to {}): {event}", self.to));
        }
        Heard::New
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn heard(follow: &mut Follow, kind: &str, seq: u64) -> bool {
        !matches!(follow.hear(&json!({"type": kind, "seq": seq}), false), Heard::Wrong(_))
    }

    #[test]
    fn numbers_go_up_by_one() {
        let mut follow = Follow::after(4);
        assert!(heard(&mut follow, "turn.started", 5) && heard(&mut follow, "assistant.delta", 6));
        assert!(!heard(&mut follow.clone(), "tool.started", 8) && !heard(&mut follow, "tool.started", 6));
    }

    #[test]
    fn within_a_bracket_they_may_jump_and_behind_it_they_may_not() {
        let mut follow = Follow::after(0);
        follow.hear(&json!({"type": "session.attached", "from_seq": 1, "to_seq": 9}), false);
        assert!(heard(&mut follow, "turn.started", 3) && heard(&mut follow, "turn.completed", 7));
        assert!(!heard(&mut follow.clone(), "turn.started", 7) && !heard(&mut follow.clone(), "turn.started", 11));
        assert!(heard(&mut follow, "assistant.delta", 9) && heard(&mut follow, "turn.started", 10));
    }

    #[test]
    fn the_answer_to_a_prompt_that_was_sent_again_is_no_event() {
        let mut follow = Follow::after(5);
        let answer = |seq: u64| json!({"type": "turn.started", "seq": seq});
        assert_eq!(follow.hear(&answer(3), true), Heard::Known);
        assert_eq!(follow.hear(&answer(6), true), Heard::New);
        assert!(heard(&mut follow.clone(), "tool.started", 6) && heard(&mut follow, "tool.started", 7));
    }
}
