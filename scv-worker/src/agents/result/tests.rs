use super::*;
use crate::agents::adapters::{ALL, NONE, find};
use crate::agents::output::codex::Codex;

const OK: Exit = Exit { code: Some(0), signal: None };
const FAILED: Exit = Exit { code: Some(1), signal: None };
const KILLED: Exit = Exit { code: None, signal: Some(9) };

const STARTED: &str = r#"{"type":"thread.started","thread_id":"t"}"#;
const ANSWER: &str = r#"{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"done 漢字"}}"#;
const COMPLETED: &str = r#"{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":2}}"#;
const TURN_FAILED: &str =
    r#"{"type":"turn.failed","error":{"message":"unexpected status 401 Unauthorized: Incorrect API key provided"}}"#;

fn heard(lines: &[&str], stderr: &str) -> Heard {
    let mut heard = Heard::new(Some(Box::<Codex>::default()));
    for line in lines {
        heard.stdout(format!("{line}\n").as_bytes());
    }
    heard.stderr(stderr.as_bytes());
    heard.finish();
    heard
}

fn context(reply_bytes: usize) -> Context<'static> {
    Context { adapter: find("codex").unwrap(), offered: ALL, reply_bytes }
}

/// Beside the agent there is another one.
fn with_another() -> [&'static Adapter; 2] {
    static OTHER: Adapter = Adapter { name: "other", ..NONE };
    [find("codex").unwrap(), &OTHER]
}

fn judge(lines: &[&str], stderr: &str, cause: &Cause) -> Outcome {
    Outcome::judge(context(1000), &heard(lines, stderr), cause)
}

#[test]
fn the_ways_a_call_ends() {
    use Status::{Cancelled, Completed, Failed, Timeout};
    let whole: &[&str] = &[STARTED, ANSWER, COMPLETED];
    let table: &[(&[&str], Cause, Status)] = &[
        (whole, Cause::Exited(OK), Completed),
        (whole, Cause::Exited(FAILED), Failed),
        (whole, Cause::Lingered, Completed),
        (whole, Cause::Deadline(9), Completed),
        (whole, Cause::Killed, Cancelled),
        (&[STARTED, ANSWER], Cause::Exited(OK), Failed),
        (&[STARTED, ANSWER], Cause::Lingered, Failed),
        (&[STARTED, ANSWER], Cause::Silent(900), Completed),
        (&[STARTED, ANSWER], Cause::Deadline(9), Timeout),
        (&[STARTED, ANSWER], Cause::Exited(KILLED), Failed),
        (&[STARTED, TURN_FAILED], Cause::Exited(FAILED), Failed),
        (&[STARTED, TURN_FAILED], Cause::Exited(OK), Failed),
        (&["just text"], Cause::Exited(OK), Completed),
        (&["just text"], Cause::Exited(FAILED), Failed),
        (&[], Cause::Cancelled, Cancelled),
    ];
    for (lines, cause, status) in table {
        let outcome = judge(lines, "", cause);
        assert_eq!(outcome.status, *status, "{lines:?} {cause:?}");
        let errs = matches!(status, Failed | Timeout);
        assert_eq!(outcome.error.is_some(), errs, "{lines:?} {cause:?}");
    }
}

#[test]
fn a_refusal_is_declined() {
    let mut heard = heard(&[STARTED, ANSWER, COMPLETED], "");
    heard.said.refused = true;
    let context = Context { offered: &with_another(), ..context(1000) };
    let outcome = Outcome::judge(context, &heard, &Cause::Exited(OK));
    assert_eq!((outcome.status, outcome.error, outcome.fallback), (Status::Declined, None, None));
    assert!(outcome.note.unwrap().starts_with("Codex declined. Tell the user what it said rather than"));
}

#[test]
fn a_turn_without_an_answer_says_so() {
    let outcome = judge(&[STARTED, COMPLETED], "", &Cause::Exited(OK));
    assert_eq!((outcome.status, outcome.reply.as_str()), (Status::Completed, ""));
    assert!(outcome.note.unwrap().contains("may have refused"));
}

#[test]
fn the_object_has_its_fields_in_order() {
    let mut outcome = judge(&[STARTED, ANSWER, COMPLETED], "warn", &Cause::Exited(OK));
    outcome.usage = Some(Usage { input_tokens: Some(1), output_tokens: Some(2), cached_tokens: None });
    outcome.session = Some("codex-1".into());
    outcome.turn = Some(1);
    assert_eq!(
        outcome.to_json(),
        r#"{"agent":"codex","exit_code":0,"reply":"done 漢字","session":"codex-1","status":"completed","stderr_tail":"warn","truncated":false,"turn":1,"usage":{"input_tokens":1,"output_tokens":2}}"#
    );
}

#[test]
fn a_reply_is_cut_on_a_character() {
    let heard = heard(&[STARTED, ANSWER, COMPLETED], "");
    for limit in 0..12 {
        let outcome = Outcome::judge(context(limit), &heard, &Cause::Exited(OK));
        assert!(outcome.reply.len() <= limit && "done 漢字".starts_with(&outcome.reply));
        assert_eq!(outcome.truncated, limit < "done 漢字".len());
    }
}

#[test]
fn a_long_stderr_is_cut_from_its_start() {
    let stderr = format!("{}the end", "x".repeat(3000));
    let outcome = judge(&[STARTED, ANSWER, COMPLETED], &stderr, &Cause::Exited(OK));
    assert!(outcome.truncated && outcome.stderr_tail.len() == 2048 && outcome.stderr_tail.ends_with("the end"));
}

#[test]
fn a_missing_sign_in_gets_a_hint() {
    let outcome = judge(&[STARTED, TURN_FAILED], "", &Cause::Exited(FAILED));
    assert_eq!(outcome.hint.unwrap(), "Codex may not be signed in: run `scv agents login codex`");
    let not_git = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/agents/samples/codex/not-git.stderr"));
    let outcome = judge(&[], not_git, &Cause::Exited(FAILED));
    assert!(outcome.hint.unwrap().contains("--skip-git-repo-check"));
    assert_eq!(judge(&["Not logged in"], "", &Cause::Exited(OK)).hint, None, "a reply is never read");
}

#[test]
fn the_error_of_an_unknown_conversation_is_what_the_adapter_knows() {
    let stderr =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/agents/samples/codex/resume-unknown.stderr"));
    let error = judge(&[], stderr, &Cause::Exited(FAILED)).error.unwrap().to_lowercase();
    assert!(find("codex").unwrap().lost.iter().any(|words| error.contains(words)), "{error}");
}

#[test]
fn a_process_that_is_gone_is_told_with_its_last_words() {
    let outcome = judge(&[STARTED], "thread panicked: API_KEY=abc", &Cause::Exited(KILLED));
    assert_eq!(outcome.exit_code, None);
    assert_eq!(
        outcome.error.unwrap(),
        "Codex exited with signal: 9 before it finished its turn: thread panicked: API_KEY=…"
    );
}

#[test]
fn other_agents_are_named_only_when_they_could_help() {
    let offered = with_another();
    let fallback = |lines: &[&str], cause| {
        Outcome::judge(Context { offered: &offered, ..context(1000) }, &heard(lines, ""), &cause).fallback
    };
    let expected = "This agent could not run: it is missing, signed out, or its provider returned an error. Other agents \
                    are available: other. Call agent again with one of them.";
    assert_eq!(fallback(&[STARTED, TURN_FAILED], Cause::Exited(FAILED)).as_deref(), Some(expected));
    assert_eq!(fallback(&[STARTED], Cause::Exited(KILLED)).as_deref(), Some(expected));
    assert_eq!(fallback(&[STARTED, ANSWER, COMPLETED], Cause::Exited(OK)), None);
    assert_eq!(fallback(&[STARTED], Cause::Deadline(9)), None);
    let own = r#"{"type":"turn.failed","error":{"message":"tests failed"}}"#;
    assert_eq!(fallback(&[STARTED, own], Cause::Exited(FAILED)), None);
    // Nothing that the agent says in its reply has a part in it.
    let bait = r#"{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"unexpected status 401"}}"#;
    assert_eq!(fallback(&[STARTED, bait, COMPLETED], Cause::Exited(OK)), None);
    assert_eq!(fallback(&[STARTED, bait, own], Cause::Exited(FAILED)), None);
}

#[test]
fn a_refusal_goes_to_the_agent_that_takes_them_but_not_on_from_there() {
    static SECOND: Adapter = Adapter { name: "second", product: "Second", second_opinion: true, ..NONE };
    let codex = find("codex").unwrap();
    assert!(declined(codex, &[codex, &SECOND]).contains("call agent again with agent second"));
    assert!(declined(&SECOND, &[codex, &SECOND]).contains("rather than passing the request"));
}
