use super::*;

/// Events of the form `say <text>`, so that these tests know no agent.
struct Say;

impl Format for Say {
    fn line(&mut self, line: &str, said: &mut Said) -> bool {
        line.strip_prefix("say ").map(|text| said.answer(text)).is_some()
    }
}

fn heard(format: Option<Box<dyn Format>>, stdout: &[u8]) -> Heard {
    let mut heard = Heard::new(format);
    heard.stdout(stdout);
    heard.finish();
    heard
}

#[test]
fn without_a_format_stdout_is_the_reply() {
    assert_eq!(heard(None, b"two\nlines\n").said.reply.as_deref(), Some("two\nlines"));
    assert_eq!(heard(None, b" \n").said.reply, None);
}

#[test]
fn a_stream_without_any_event_falls_back_to_its_text() {
    let heard = heard(Some(Box::new(Say)), b"a banner\nno event\n");
    assert_eq!(heard.said.reply.as_deref(), Some("a banner\nno event"));
    assert!(!heard.has_events());
}

#[test]
fn text_beside_events_is_no_reply() {
    assert_eq!(heard(Some(Box::new(Say)), b"a banner\nsay hello\nnoise").said.reply.as_deref(), Some("hello"));
    assert_eq!(heard(Some(Box::new(Say)), b"a banner\nsay unfinished").said.reply.as_deref(), Some("unfinished"));
}

#[test]
fn text_without_end_is_bounded() {
    let mut heard = Heard::new(None);
    for _ in 0..40 {
        heard.stdout(&[b"x".repeat(100 << 10), b"\n".to_vec()].concat());
    }
    heard.finish();
    assert!(heard.said.reply_cut);
    assert!(heard.said.reply.unwrap().len() <= REPLY_BYTES);
}

#[test]
fn an_error_is_cut_and_masked() {
    let mut said = Said::default();
    said.trouble(&format!("401: Bearer abc {}", "x".repeat(10_000)));
    let error = said.error.unwrap();
    assert!(error.len() <= ERROR_BYTES);
    assert!(error.starts_with("401: Bearer … xxx"), "{error}");
}
