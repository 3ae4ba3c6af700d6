use std::time::Duration;

use serde_json::json;
use shared::protocol::client::SessionAttach;

use super::*;

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

struct Play {
    follow: Follow,
    now: Instant,
    seq: u64,
}

impl Play {
    /// A session that was not opened yet.
    fn new() -> Self {
        let session_id = ID.parse().unwrap();
        let open = ClientMessage::SessionAttach(SessionAttach {
            request_id: "open".into(),
            session_id,
            after_seq: 0,
            on_disconnect: None,
            auto_approve: None,
            client: None,
            observe: false,
        });
        let follow = Follow::new(session_id, &open, "turn".into(), "hi".into());
        Self { follow, now: Instant::now(), seq: 0 }
    }

    /// A session that was opened.
    fn open() -> Self {
        let mut play = Self::new();
        let acts = play.event(json!({
            "type": "session.attached", "request_id": "open", "session_id": ID, "state": "idle",
            "from_seq": 0, "to_seq": 0, "cwd": "/w", "model": "m",
        }));
        assert!(
            matches!(&acts[..], [Act::Send(message)] if matches!(**message, ClientMessage::TurnStart(_))),
            "{acts:?}"
        );
        play
    }

    /// A session in which our turn runs.
    fn running() -> Self {
        let mut play = Self::open();
        assert_eq!(play.turn(json!({"type": "turn.started"})), []);
        play
    }

    fn event(&mut self, event: serde_json::Value) -> Vec<Act> {
        self.follow.event(serde_json::from_value(event).unwrap(), self.now)
    }

    /// An event of our turn, with the next number.
    fn turn(&mut self, event: serde_json::Value) -> Vec<Act> {
        self.of("turn", event)
    }

    fn of(&mut self, request_id: &str, event: serde_json::Value) -> Vec<Act> {
        self.of_turn_named(&format!("turn of {request_id}"), request_id, event)
    }

    /// An event of our turn, under any request id.
    fn of_turn(&mut self, request_id: &str, event: serde_json::Value) -> Vec<Act> {
        self.of_turn_named("turn of turn", request_id, event)
    }

    fn of_turn_named(&mut self, turn: &str, request_id: &str, mut event: serde_json::Value) -> Vec<Act> {
        self.seq += 1;
        let common = json!({"request_id": request_id, "session_id": ID, "turn_id": turn, "seq": self.seq});
        event.as_object_mut().unwrap().extend(common.as_object().unwrap().clone());
        self.event(event)
    }

    fn delta(&mut self, text: &str) -> Vec<Act> {
        self.turn(json!({"type": "assistant.delta", "content": text}))
    }

    fn completed(&mut self, text: &str) -> Vec<Act> {
        self.turn(json!({"type": "assistant.completed", "content": text}))
    }

    fn done(&mut self) -> Vec<Act> {
        self.turn(json!({"type": "turn.completed", "steps": 1, "usage": {}}))
    }
}

/// The answer as stdout shows it.
fn shown(acts: &[Act]) -> String {
    let mut text = String::new();
    for act in acts {
        match act {
            Act::Answer(more) => text += more,
            Act::EndLine if !text.is_empty() && !text.ends_with('\n') => text += "\n",
            _ => {}
        }
    }
    text
}

fn said(acts: &[Act]) -> Vec<&str> {
    acts.iter().filter_map(|act| if let Act::Say(text) = act { Some(text.as_str()) } else { None }).collect()
}

#[test]
fn an_answer_is_streamed_and_ends_with_a_newline() {
    let mut play = Play::running();
    let acts = [play.delta("Hel"), play.delta("lo"), play.completed("Hello"), play.done()].concat();
    assert_eq!(acts[0], Act::Answer("Hel".into()));
    assert_eq!(shown(&acts), "Hello\n");
    assert_eq!(acts.last(), Some(&Act::End(End::Completed { denied: 0 })));
}

#[test]
fn text_before_a_call_and_after_it_are_lines_of_their_own() {
    let mut play = Play::running();
    let acts =
        [play.delta("one"), play.completed("one"), play.completed(""), play.delta("two\n"), play.completed("two\n")];
    assert_eq!(shown(&acts.concat()), "one\ntwo\n");
}

#[test]
fn lost_deltas_are_made_up_for_by_the_whole_text() {
    let mut play = Play::running();
    let mut acts = play.delta("Hel");
    play.seq += 3;
    acts.extend(play.delta("xx"));
    acts.extend(play.completed("Hello, wor-xx-ld"));
    assert_eq!(shown(&acts), "Hello, wor-xx-ld\n");
    // No delta at all: a server that sends none, or one that dropped them all.
    assert_eq!(shown(&play.completed("whole")), "whole\n");
}

#[test]
fn a_text_that_is_not_what_was_streamed_is_said_again() {
    let mut play = Play::running();
    let acts = [play.delta("abc"), play.completed("xyz")].concat();
    assert_eq!(shown(&acts), "abc\nxyz\n");
}

#[test]
fn a_call_is_told_from_its_start_to_its_end() {
    let mut play = Play::running();
    play.turn(
        json!({"type": "tool.proposed", "call_id": "c", "name": "bash", "arguments": "{\"command\":\"cargo test\"}"}),
    );
    let started = play.turn(json!({"type": "tool.started", "call_id": "c", "name": "bash", "limit_ms": 600_000}));
    assert_eq!(said(&started), ["> bash: cargo test (limit 10 min)"]);
    let progress = play.turn(json!({"type": "tool.progress", "call_id": "c", "text": "Compiling\n\nRunning"}));
    assert_eq!(said(&progress), ["  | Compiling", "  | Running"]);
    let later = play.now + Duration::from_secs(12);
    assert_eq!(play.follow.status(later).unwrap(), "bash: cargo test · 12 s of 10 min");
    let completed = json!({"type": "tool.completed", "call_id": "c", "name": "bash", "success": false, "output": "exit status: 101\nmore",
        "truncated": false, "error": "failed", "duration_ms": 1500});
    assert_eq!(said(&play.turn(completed)), ["< bash failed after 1.5 s: exit status: 101"]);
    let fields = json!({"type": "tool.completed", "call_id": "d", "name": "bash", "success": false, "truncated": false,
        "output": "{\"error\":\"reached its limit of 5 s\",\"output\":\"a\"}", "error": "limit"});
    assert_eq!(said(&play.turn(fields)), ["< bash reached its limit: reached its limit of 5 s"]);
    assert_eq!(play.follow.status(later).unwrap(), "thinking · 12 s");
}

#[test]
fn a_denied_call_makes_the_end_a_denied_one() {
    let mut play = Play::running();
    let completed = json!({"type": "tool.completed", "call_id": "c", "name": "bash", "success": false, "output": "no",
        "truncated": false, "error": "denied"});
    assert_eq!(said(&play.turn(completed)), ["< bash: denied"]);
    assert_eq!(play.done(), [Act::EndLine, Act::End(End::Completed { denied: 1 })]);
}

#[test]
fn an_approval_of_our_turn_is_asked_and_one_of_another_turn_is_not() {
    let request = json!({"type": "approval.requested", "approval_id": "a", "call_id": "c", "name": "bash",
        "risk": "process", "cwd": "/w", "summary": "rm"});
    let mut play = Play::running();
    assert!(matches!(&play.turn(request.clone())[..], [Act::Ask(_)]));
    assert_eq!(play.of("client:2:x", request), []);
    let settled =
        json!({"type": "approval.resolved", "session_id": ID, "approval_id": "a", "approved": true, "by": "client"});
    assert_eq!(play.event(settled), [Act::Settled("a".into())]);
}

#[test]
fn ctrl_c_cancels_the_turn_and_waits_for_its_end() {
    let mut play = Play::running();
    let acts = play.follow.interrupt("r9".into());
    assert!(
        matches!(&acts[..], [Act::Say(_), Act::Send(m)] if matches!(&**m, ClientMessage::TurnCancel(c) if c.turn_id == "turn of turn"))
    );
    assert_eq!(play.turn(json!({"type": "turn.cancelled"})), [Act::EndLine, Act::End(End::Interrupted)]);
}

#[test]
fn ctrl_c_before_the_turn_leaves_and_in_the_queue_takes_the_prompt_back() {
    assert_eq!(Play::open().follow.interrupt("r9".into()), [Act::End(End::Interrupted)]);
    let mut play = Play::open();
    let entry = json!({"queue_id": "q", "revision": 3, "prompt": "hi"});
    play.of("turn", json!({"type": "queue.enqueued", "entry": entry, "position": 0}));
    let acts = play.follow.interrupt("r9".into());
    assert!(matches!(&acts[..], [Act::Send(m)] if matches!(&**m, ClientMessage::QueueRemove(r) if r.revision == 3)));
    let removed = play.of("r9", json!({"type": "queue.removed", "queue_id": "q"}));
    assert_eq!(removed, [Act::End(End::Interrupted)]);
}

#[test]
fn a_turn_that_somebody_else_cancels_is_not_our_interruption() {
    let mut play = Play::running();
    assert_eq!(play.turn(json!({"type": "turn.cancelled"})), [Act::EndLine, Act::End(End::Cancelled)]);
}

#[test]
fn turns_of_others_are_not_ours() {
    let mut play = Play::open();
    assert_eq!(play.of("client:1:r2", json!({"type": "assistant.delta", "content": "x"})), []);
    assert_eq!(play.of("client:1:r2", json!({"type": "turn.completed", "steps": 1, "usage": {}})), []);
    assert!(!play.follow.has_turn());
}

#[test]
fn a_paused_queue_goes_on_for_a_lone_prompt_and_not_past_others() {
    let paused = json!({"type": "queue.snapshot", "request_id": null, "session_id": ID, "entries": [], "paused": true});
    let enqueued = |position: usize| json!({"type": "queue.enqueued", "entry": {"queue_id": "q", "revision": 1, "prompt": "hi"}, "position": position});
    let mut play = Play::open();
    play.event(paused.clone());
    let acts = play.of("turn", enqueued(0));
    assert!(matches!(&acts[..], [Act::Send(m)] if matches!(&**m, ClientMessage::SessionPause(p) if !p.paused)));
    let mut play = Play::open();
    play.event(paused);
    let acts = play.of("turn", enqueued(2));
    assert!(matches!(&acts[..], [Act::Send(_), Act::End(End::Paused { waiting: 2 })]), "{acts:?}");
}

#[test]
fn a_refused_opening_ends_and_a_refused_approval_does_not() {
    let error = |id: &str, fatal: bool| json!({"type": "error", "request_id": id, "code": "invalid_request", "message": "m", "fatal": fatal});
    let mut play = Play::new();
    assert!(matches!(&play.event(error("open", false))[..], [Act::End(End::Refused(_))]));
    let mut play = Play::running();
    assert_eq!(play.event(error("r7", false)), []);
    assert!(matches!(&play.event(error("r7", true))[..], [Act::End(End::Refused(_))]));
}

#[test]
fn a_turn_that_a_crash_interrupted_is_said_once() {
    let mut play = Play::open();
    let crash = json!({"type": "turn.failed", "code": "session_crashed", "message": "the worker was killed"});
    assert_eq!(play.of("client:1:r2", crash), []);
    let started = play.turn(json!({"type": "turn.started"}));
    assert_eq!(said(&started), ["the turn before this one did not end: the worker was killed"]);
}

/// The connection of `play` is lost and there is a new one; what is sent over it first.
fn attach_again(play: &mut Play) -> (u64, Vec<Act>) {
    let opening = Opening::of(ID.parse().unwrap());
    let mut ids = ["again".to_owned(), "turn-2".to_owned()].into_iter();
    let open = play.follow.attach_again(&opening, &mut || ids.next().unwrap());
    let ClientMessage::SessionAttach(attach) = open else { panic!("{open:?}") };
    let acts = play.event(json!({
        "type": "session.attached", "request_id": "again", "session_id": ID, "state": "working",
        "from_seq": attach.after_seq + 1, "to_seq": play.seq, "cwd": "/w", "model": "m",
    }));
    (attach.after_seq, acts)
}

#[test]
fn text_that_was_printed_is_not_printed_again_over_a_new_connection() {
    let mut play = Play::running();
    let mut acts = play.delta("one ");
    play.seq += 3;
    let (after, sent) = attach_again(&mut play);
    assert_eq!((after, sent), (2, vec![]));
    // All of the text so far, then what follows; under the request id that others see.
    acts.extend(play.of_turn("client:1:turn", json!({"type": "assistant.delta", "content": "one two "})));
    acts.extend(play.of_turn("client:1:turn", json!({"type": "assistant.delta", "content": "three"})));
    acts.extend(play.of_turn("client:1:turn", json!({"type": "assistant.completed", "content": "one two three"})));
    let end = play.of_turn("client:1:turn", json!({"type": "turn.completed", "steps": 1, "usage": {}}));
    assert_eq!(shown(&acts), "one two three\n");
    assert_eq!(end.last(), Some(&Act::End(End::Completed { denied: 0 })));
}

#[test]
fn a_prompt_of_which_nothing_was_heard_is_sent_again_and_its_turn_found_in_the_replay() {
    let mut play = Play::open();
    let (_, sent) = attach_again(&mut play);
    assert!(
        matches!(&sent[..], [Act::Send(m)] if matches!(&**m, ClientMessage::TurnStart(t) if t.request_id == "turn-2")),
        "{sent:?}"
    );
    // What was replayed meanwhile may be ours or not.
    let other =
        play.of_turn_named("other", "client:7:r1", json!({"type": "assistant.completed", "content": "not ours"}));
    let ours = play.of_turn("client:1:turn", json!({"type": "assistant.completed", "content": "ours"}));
    assert_eq!((other, ours), (vec![], vec![]));
    let acts = play.of_turn("turn-2", json!({"type": "turn.started"}));
    assert_eq!(shown(&acts), "ours\n");
    // One that had ended already is answered with its end.
    let mut play = Play::open();
    attach_again(&mut play);
    play.of_turn("client:1:turn", json!({"type": "assistant.completed", "content": "ours"}));
    let acts = play.of_turn("turn-2", json!({"type": "turn.completed", "steps": 1, "usage": {}}));
    assert_eq!(shown(&acts), "ours\n");
    assert_eq!(acts.last(), Some(&Act::End(End::Completed { denied: 0 })));
}
