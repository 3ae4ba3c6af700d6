//! The provider's key and its raw words: in no child, event, journal, log or file but the one
//! where the user put the key.

use std::path::{Path, PathBuf};

use scv_tests::fakes::model::{Model, Reply};
use scv_tests::talk::{failure, of_type};
use scv_tests::{Talk, TestEnv};
use serde_json::{Value, json};

/// The key of [`TestEnv::configure`].
const KEY: &str = "sk-test-0123456789abcdef";
/// A key that looks like any word: only its value tells.
const PLAIN_KEY: &str = "correct horse battery staple";
const ONCE: &str = "[provider_limits]\nmax_retries = 0";

/// Every file below `dir` that holds `needle`, by its path from there.
fn holding(dir: &Path, needle: &str) -> Vec<String> {
    let paths = files_holding(dir, needle);
    paths.iter().map(|path| path.strip_prefix(dir).unwrap().display().to_string()).collect()
}

fn files_holding(dir: &Path, needle: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files_holding(&entry.path(), needle));
        } else if kind.is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            if bytes.windows(needle.len()).any(|window| window == needle.as_bytes()) {
                found.push(entry.path());
            }
        }
    }
    found
}

fn stderr(talk: &Talk) -> String {
    talk.env.supervisor().as_ref().unwrap().stderr()
}

#[test]
fn every_refusal_is_a_sentence_of_ours_with_what_to_do() {
    let mut talk = Talk::configured(ONCE);
    let long_body = format!("<html>{}</html>", "Traceback /srv/app/main.py org-1234567890 ".repeat(2000));
    let refusals = [
        ("401 Unauthorized", "invalid_api_key", ["(401)", "refused the key", "`api_key`"]),
        ("403 Forbidden", "forbidden", ["(403)", "denied access", "key of [providers.fake]"]),
        ("404 Not Found", "model_not_found", ["(404)", "was not found", "`model` (\"fake-model\")"]),
        ("429 Too Many Requests", "rate_limit_exceeded", ["(429)", "limits requests", "try again later"]),
        ("429 Too Many Requests", "insufficient_quota", ["(429)", "no quota left", "plan and billing"]),
        ("500 Internal Server Error", "server_error", ["(500)", "the provider failed", "try again later"]),
        ("503 Service Unavailable", "server_is_overloaded", ["(503)", "the provider failed", "try again later"]),
        ("400 Bad Request", "invalid_value", ["(400)", "refused the request", ""]),
        ("307 Temporary Redirect", "", ["(307)", "redirects", "`base_url`"]),
    ];
    for (status, code, words) in refusals {
        let said = format!("Incorrect key {KEY} of organization org-1234567890, user-abc12345");
        let raw = Reply::status(status).header("content-type", "text/html").bytes(long_body.as_str());
        for reply in [Reply::error(status, code, &said), raw.header("location", "https://evil.example/?k=1234")] {
            talk.model.push(reply);
            let (kind, message) = failure(&talk.turn("hello"));
            assert_eq!(kind, "provider_error", "{message}");
            assert!(message.contains(words[0]), "{message}");
            for leak in [KEY, "org-1234567890", "user-abc12345", "Traceback", "<html>", "k=1234"] {
                assert!(!message.contains(leak), "{leak} in: {message}");
            }
            assert!(message.len() < 700 && !message.contains('\n'), "{message}");
        }
        talk.model.push(Reply::error(status, code, &said));
        let (_, message) = failure(&talk.turn("hello"));
        assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
    }
    for leak in [KEY, "org-1234567890", "Traceback"] {
        assert_eq!(holding(&talk.env.layout().state(), leak), Vec::<String>::new(), "{leak}");
        assert!(!stderr(&talk).contains(leak), "{leak}");
    }
}

#[test]
fn a_failure_inside_the_stream_is_told_the_same_way() {
    let mut talk = Talk::configured(ONCE);
    talk.model.push(Reply::new().failed("server_error", &format!("key {KEY} in org-1234567890 broke")));
    let (code, message) = failure(&talk.turn("hello"));
    assert_eq!(code, "provider_error");
    assert!(message.contains("the provider reported a failure"), "{message}");
    assert!(!message.contains(KEY) && !message.contains("org-1234567890"), "{message}");
}

#[test]
fn a_conversation_that_does_not_fit_says_so() {
    let mut talk = Talk::configured(ONCE);
    talk.model.push(Reply::error("400 Bad Request", "context_length_exceeded", "too many tokens"));
    let (code, message) = failure(&talk.turn("hello"));
    assert_eq!(code, "context_limit");
    assert!(message.contains("does not fit the model"), "{message}");
}

/// A supervisor whose environment holds keys in every way that one can be configured.
fn with_keys(more: &str) -> Talk {
    let model = Model::start_blocking();
    let env = TestEnv::new()
        .var("FAKE_PROVIDER_KEY", PLAIN_KEY)
        .var("OPENAI_API_KEY", "sk-openai-value-of-a-built-in-profile")
        .var("COPY_OF_KEY", KEY)
        .var("HEADER_COPY", "header-secret-4711")
        .var("HARMLESS", "stays");
    let more = format!(
        "headers = {{ \"x-api-token\" = \"header-secret-4711\", \"x-title\" = \"stays\" }}\n\
         [providers.other]\nkind = \"openai-compatible\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:9\"\n\
         api_key_env = \"FAKE_PROVIDER_KEY\"\n{more}"
    );
    env.configure(&model.url(), &more);
    Talk::of(env, model, &[], &json!({"auto_approve": true}))
}

#[test]
fn no_child_gets_a_key() {
    let mut talk = with_keys("");
    // What the kernel says, not what a shell may have left out.
    let result = talk.call("bash", &json!({"command": "tr '\\0' '\\n' </proc/$$/environ"}));
    let output = result["output"].as_str().unwrap();
    assert!(output.contains("HARMLESS=stays"), "{output}");
    for name in ["FAKE_PROVIDER_KEY", "OPENAI_API_KEY", "COPY_OF_KEY", "HEADER_COPY", "SCV_API_KEY"] {
        assert!(!output.contains(name), "{name}: {output}");
    }
}

#[test]
fn pass_env_gives_a_key_back_and_what_it_prints_is_still_hidden() {
    let mut talk = with_keys("[tools]\npass_env = [\"COPY_OF_KEY\"]");
    let command =
        format!("test \"$COPY_OF_KEY\" = {KEY} && echo same; echo \"it is $COPY_OF_KEY\"; env | grep -c ^FAKE_P");
    let result = talk.call("bash", &json!({"command": command}));
    let output = result["output"].as_str().unwrap();
    assert!(output.contains("same") && output.contains("it is [secret]") && !output.contains(KEY), "{output}");
}

#[test]
fn a_key_from_the_client_s_environment_reaches_no_child_and_no_disk() {
    let model = Model::start_blocking();
    let env = TestEnv::new();
    env.configure(&model.url(), "");
    let client = json!({"env": {"SCV_API_KEY": PLAIN_KEY, "ANOTHER": PLAIN_KEY, "HARMLESS": "stays",
        "PATH": "/usr/bin:/bin", "HOME": env.root().join("home")}, "overrides": {}});
    let mut talk = Talk::of(env, model, &[], &json!({"auto_approve": true, "client": client}));
    let result = talk.call("bash", &json!({"command": "env"}));
    let output = result["output"].as_str().unwrap();
    assert!(output.contains("HARMLESS=stays") && !output.contains("ANOTHER"), "{output}");
    let asked = talk.last_request();
    assert_eq!(asked.header("authorization"), Some(&*format!("Bearer {PLAIN_KEY}")), "the provider gets it");
    assert_eq!(holding(talk.env.layout().home(), PLAIN_KEY), Vec::<String>::new());
}

#[test]
fn a_key_that_a_tool_comes_across_goes_no_further() {
    let mut talk = with_keys("");
    let config = talk.env.layout().config();
    std::fs::copy(&config, talk.env.work().join("copy.toml")).unwrap();
    let calls = [
        (
            "bash",
            json!({"command": format!("cat {}; echo {PLAIN_KEY} >&2; echo 'header-secret-4711'", config.display())}),
        ),
        ("read", json!({"path": "copy.toml"})),
        ("read", json!({"path": KEY})),
        ("write", json!({"path": "copy.toml", "mode": "replace", "content": "nothing"})),
    ];
    let mut seen: Vec<Value> = Vec::new();
    for (name, arguments) in calls {
        talk.model.push(Reply::new().call(name, &arguments));
        talk.model.push(Reply::text("done"));
        seen.extend(talk.turn("look"));
    }
    let results = of_type(&seen, "tool.completed");
    assert_eq!(results.len(), 4);
    let shown = Value::from(results).to_string();
    let sent = Value::from(talk.last_request().input().to_vec()).to_string();
    for key in [KEY, PLAIN_KEY, "header-secret-4711"] {
        assert!(!shown.contains(key), "{key} in a result: {shown}");
        assert!(!stderr(&talk).contains(key), "{key} in the log");
    }
    // Ours are hidden; what the model itself wrote comes back to it as it was.
    assert!(shown.contains("[secret]") && sent.contains("[secret]"));
    // The tool's bytes are the file's.
    talk.call("bash", &json!({"command": "cp copy.toml other.toml"}));
    assert_eq!(std::fs::read_to_string(talk.env.work().join("other.toml")).unwrap(), "nothing");
}

#[test]
fn the_key_is_in_no_file_but_the_one_where_the_user_put_it() {
    let mut talk = with_keys(ONCE);
    talk.call("bash", &json!({"command": "env; cat \"$SCV_HOME/config.toml\""}));
    talk.model.push(Reply::error("401 Unauthorized", "invalid_api_key", &format!("wrong: {KEY}, {PLAIN_KEY}")));
    talk.turn("hello");
    for key in [KEY, "header-secret-4711"] {
        assert_eq!(holding(talk.env.layout().home(), key), ["config.toml"], "{key}");
    }
    assert_eq!(holding(talk.env.layout().home(), PLAIN_KEY), Vec::<String>::new());
    let home = talk.env.layout().home().to_owned();
    let root = talk.env.root().to_owned();
    drop(talk.wire);
    // Also after everything was folded up.
    talk.env.scv(&["stop"]).exits(0);
    assert_eq!(holding(&home, KEY), ["config.toml"]);
    assert_eq!(holding(&root, PLAIN_KEY), Vec::<String>::new());
}
