use super::super::{Heard, Phase, Said};
use super::Codex;

use shared::protocol::server::Usage;

/// A recorded stream of the real program.
macro_rules! sample {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/agents/samples/codex/", $name, ".jsonl"))
    };
}

fn said(stream: &[u8]) -> Said {
    let mut heard = Heard::new(Some(Box::<Codex>::default()));
    heard.stdout(stream);
    heard.finish();
    heard.said
}

fn tokens(input: u64, output: u64) -> Usage {
    Usage { input_tokens: Some(input), output_tokens: Some(output), cached_tokens: None }
}

/// A stream, its reply, its usage and what it shows.
type Completed = (&'static [u8], Option<&'static str>, Usage, &'static [&'static str]);

#[test]
fn recorded_turns_that_complete() {
    let table: &[Completed] = &[
        (sample!("plain"), Some("pong: hello one (turn 1)"), tokens(12, 7), &[]),
        (sample!("resumed"), Some("pong: hello two (turn 2)"), tokens(24, 14), &[]),
        (sample!("think"), Some("pong: [[think]] (turn 1)"), tokens(12, 7), &[]),
        (sample!("refusal"), None, tokens(12, 7), &[]),
        (
            sample!("tool"),
            Some(
                "tool-result: Chunk ID: 050361\nWall time: 0.0140 seconds\nProcess exited with code 0\nOriginal token count: 1\nOutput:\nhi\n",
            ),
            tokens(24, 14),
            &["$ /bin/bash -lc 'echo hi'"],
        ),
        (
            sample!("reconnected"),
            Some("pong: hello (turn 1)"),
            tokens(12, 7),
            &[
                "warning: Reconnecting... 2/5 (unexpected status 404 Not Found: no such path, url: ws://127.0.0.1:18002/v1/responses)",
                "warning: Reconnecting... 3/5 (unexpected status 404 Not Found: no such path, url: ws://127.0.0.1:18002/v1/responses)",
                "warning: Reconnecting... 4/5 (unexpected status 404 Not Found: no such path, url: ws://127.0.0.1:18002/v1/responses)",
                "warning: Reconnecting... 5/5 (unexpected status 404 Not Found: no such path, url: ws://127.0.0.1:18002/v1/responses)",
            ],
        ),
    ];
    for (stream, reply, usage, progress) in table {
        let said = said(stream);
        assert!(said.thread.is_some(), "{reply:?}");
        assert_eq!(said.reply.as_deref(), *reply);
        assert_eq!(said.usage, Some(*usage), "{reply:?}");
        assert_eq!(said.progress, *progress, "{reply:?}");
        assert_eq!((said.failed, said.error, said.phase), (false, None, Phase::Ended), "{reply:?}");
    }
}

#[test]
fn recorded_turns_that_fail() {
    let table: &[(&[u8], Option<&str>, &str)] = &[
        (
            sample!("http401"),
            None,
            "unexpected status 401 Unauthorized: Incorrect API key provided, url: http://127.0.0.1:18002/v1/responses, request id: req_343f576b0fb2",
        ),
        (sample!("http404"), None, "The model does not exist"),
        (
            sample!("http429"),
            None,
            "exceeded retry limit, last status: 429 Too Many Requests, request id: req_b221eafec92e",
        ),
        (sample!("http500"), None, "We’re currently experiencing high demand, which may cause temporary errors."),
        (sample!("cut"), None, "stream disconnected before completion: stream closed before response.completed"),
        (sample!("failed"), Some("pong: [[fail]] (turn 1)"), "stream disconnected before completion: the fake failed"),
        (
            sample!("maxtok"),
            Some("pong: [[maxtok]] (turn 1)"),
            "Incomplete response returned, reason: max_output_tokens",
        ),
        (sample!("signed-out"), None, "Missing environment variable: `FAKE_KEY`."),
    ];
    for (stream, reply, error) in table {
        let said = said(stream);
        assert_eq!(said.error.as_deref(), Some(*error));
        assert_eq!(said.reply.as_deref(), *reply, "{error}");
        assert_eq!((said.failed, said.phase, said.usage), (true, Phase::Ended, None), "{error}");
    }
}

#[test]
fn a_turn_that_was_stopped_has_no_end() {
    let said = said(sample!("stopped"));
    assert_eq!(said.thread.as_deref(), Some("01a22e10-3305-7f82-a9db-1be3cc138958"));
    assert_eq!((said.failed, said.phase), (false, Phase::Working));
    assert_eq!(said.progress, ["$ /bin/bash -lc 'sleep 3102'"]);
}

#[test]
fn what_it_does_becomes_progress() {
    let stream = br#"{"type":"item.started","item":{"id":"1","type":"command_execution","command":"TOKEN=abc make","exit_code":null}}
{"type":"item.completed","item":{"id":"1","type":"command_execution","command":"TOKEN=abc make","aggregated_output":"secret","exit_code":2}}
{"type":"item.completed","item":{"id":"2","type":"file_change","changes":[{"path":"/home/u/p/src/a.rs","kind":"update"},{"path":"b.rs","kind":"add"}]}}
{"type":"item.started","item":{"id":"3","type":"web_search","query":""}}
{"type":"item.completed","item":{"id":"3","type":"web_search","query":"tokio latest"}}
"#;
    let expected = ["$ TOKEN=… make", "exit 2: TOKEN=… make", "update src/a.rs", "add b.rs", "search: tokio latest"];
    assert_eq!(said(stream).progress, expected);
}

#[test]
fn an_answer_is_the_last_word_only_while_nothing_runs() {
    let message = r#"{"type":"item.completed","item":{"id":"9","type":"agent_message","text":"done"}}"#;
    let started = r#"{"type":"item.started","item":{"id":"1","type":"command_execution","command":"sleep 9"}}"#;
    assert_eq!(said(message.as_bytes()).phase, Phase::Answered);
    assert_eq!(said(format!("{started}\n{message}").as_bytes()).phase, Phase::Working);
    assert_eq!(said(format!("{message}\n{started}").as_bytes()).phase, Phase::Working);
}

#[test]
fn unknown_events_and_fields_and_odd_shapes_are_ignored() {
    let stream = br#"{"type":"new.event","x":1}
{"no":"type"}
{"type":"thread.started","thread_id":7}
{"type":"item.completed","item":{"id":"1","type":"hologram","text":3}}
{"type":"item.completed","item":{"id":"2","type":"agent_message","text":"ok","extra":[1]},"more":null}
{"type":"turn.completed"}
"#;
    let said = said(stream);
    assert_eq!((said.reply.as_deref(), said.thread, said.phase), (Some("ok"), None, Phase::Ended));
}

#[test]
fn the_reply_may_be_as_long_as_the_line_limit_and_is_kept_in_part() {
    let text = "é".repeat(1 << 20);
    let stream = format!(r#"{{"type":"item.completed","item":{{"id":"1","type":"agent_message","text":"{text}"}}}}"#);
    let said = said(stream.as_bytes());
    assert!(said.reply_cut);
    assert!(said.reply.unwrap().len() <= 1 << 20);
}

proptest::proptest! {
    #[test]
    fn no_bytes_break_the_parser(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..2000)) {
        let _ = said(&bytes);
    }

    #[test]
    fn no_damage_to_a_recorded_stream_breaks_the_parser(
        at in 0..1000_usize, with in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..8), chunk in 1..64_usize
    ) {
        let mut stream = sample!("tool").to_vec();
        let at = at.min(stream.len());
        stream.splice(at..(at + with.len()).min(sample!("tool").len()), with);
        let mut heard = Heard::new(Some(Box::<Codex>::default()));
        for bytes in stream.chunks(chunk) {
            heard.stdout(bytes);
        }
        heard.finish();
        proptest::prop_assert_eq!(&heard.said, &said(&stream));
    }
}
