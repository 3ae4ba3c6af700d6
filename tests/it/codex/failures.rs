//! A Codex that cannot work: the call fails, the turn goes on, and the result says what is wrong.

use super::*;

#[test]
fn an_error_of_its_provider_is_the_error_of_the_result() {
    // Status, what the provider says, what Codex makes of it, whether it reads like a missing sign-in.
    let table = [
        ("401 Unauthorized", "Incorrect API key provided", "unexpected status 401 Unauthorized: ", true),
        (
            "404 Not Found",
            "The model does not exist",
            "unexpected status 404 Not Found: The model does not exist",
            false,
        ),
        ("429 Too Many Requests", "slow down", "exceeded retry limit, last status: 429 Too Many Requests", false),
        ("500 Internal Server Error", "boom", "We’re currently experiencing high demand", false),
    ];
    let mut talk = talk("");
    for (status, says, error, signed_out) in table {
        codex_answers(&talk.model, [Reply::error(status, "e", says)]);
        let result = delegate(&mut talk, "work", &json!({}));
        assert_eq!((&result["status"], &result["exit_code"]), (&json!("failed"), &json!(1)), "{status}: {result}");
        assert!(result["error"].as_str().unwrap().starts_with(error), "{status}: {result}");
        let hint = result["hint"].as_str().unwrap_or_default();
        assert_eq!(hint.contains("scv agents login codex"), signed_out, "{status}: {result}");
        assert!(!result.to_string().contains(CODEX_KEY), "{result}");
        // There is no other agent that could be named.
        assert_eq!(result.get("fallback"), None, "{status}: {result}");
        assert_gone(&talk.env);
    }
}

#[test]
fn a_codex_that_is_not_signed_in_is_offered_and_its_result_says_how_to() {
    let mut talk = talk("");
    sign_in(&talk.env, &talk.model, "env_key = \"CODEX_PROVIDER_KEY\"");
    let result = delegate(&mut talk, "work", &json!({}));
    assert_eq!(result["status"], "failed");
    assert_eq!(result["error"], "Missing environment variable: `CODEX_PROVIDER_KEY`.");
    assert_eq!(result["hint"], "Codex may not be signed in: run `scv agents login codex`");
    assert_eq!(codex_requests(&talk.model).len(), 0);
}

#[test]
fn outside_of_a_repository_the_result_says_what_to_change() {
    let mut talk = talk("");
    fs::remove_dir_all(talk.env.work().join(".git")).unwrap();
    let result = delegate(&mut talk, "work", &json!({}));
    assert_eq!((&result["status"], result.get("session")), (&json!("failed"), None), "{result}");
    assert!(result["error"].as_str().unwrap().contains("Not inside a trusted directory"), "{result}");
    assert!(result["hint"].as_str().unwrap().contains("--skip-git-repo-check"), "{result}");
    // A conversation that Codex never began is no conversation.
    let refused = talk.call("agent", &json!({"prompt": "x", "session": "codex-1"}));
    assert_eq!(refused["error"], "invalid_arguments", "{refused}");
}

#[test]
fn a_call_that_is_refused_starts_nothing_and_asks_nobody() {
    let (env, model) = installed("");
    let mut talk = Talk::of(env, model, &[], &json!({}));
    for arguments in [
        json!({"agent": "codex", "prompt": "-h"}),
        json!({"agent": "codex", "prompt": "x", "model": "-m"}),
        json!({"agent": "codex", "prompt": "x", "timeout_seconds": 14_401}),
        json!({"agent": "claude", "prompt": "x"}),
        json!({"prompt": "x"}),
    ] {
        let (asked, result) = talk.call_asked("agent", &arguments);
        assert_eq!((asked, &result["error"]), (None, &json!("invalid_arguments")), "{arguments}: {result}");
    }
    let outside = talk.call("agent", &json!({"agent": "codex", "prompt": "x", "cwd": ".."}));
    assert!(outside["output"].as_str().unwrap().contains("outside the workspace"), "{outside}");
    assert_eq!(codex_requests(&talk.model).len(), 0);
}
