//! A configuration that is missing or broken: one sentence with file, line, key and what is
//! allowed, never the line itself; and what has to work all the same, does.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use scv_tests::{Output, TestEnv};

/// A value that must not be shown, as every broken file below holds it.
const SECRET: &str = "sk-live-never-show-this-0123456789";

/// One broken file: what is wrong, the text, and what the sentence has to name.
const BROKEN: &[(&str, &str, &[&str])] = &[
    ("an unknown key", "[provider]\nactive = \"a\"\nsecret_key = \"@\"\n", &["config.toml", "3", "secret_key"]),
    ("an unknown table", "[provder]\nactive = \"@\"\n", &["config.toml", "1", "provder"]),
    ("a value of the wrong type", "[agent]\nmax_steps = \"@\"\n", &["config.toml", "2", "max_steps"]),
    (
        "a value that is not allowed",
        "[tools]\napproval_policy = \"@\"\n",
        &["config.toml", "2", "approval_policy", "on-risk"],
    ),
    (
        "a number over its limit",
        "# @\n[tools]\nmax_timeout_seconds = 86401\n",
        &["config.toml", "3", "max_timeout_seconds", "86400"],
    ),
    ("a string without its end", "[providers.a]\napi_key = \"@\n", &["config.toml", "2"]),
    ("no TOML at all", "api key: @\n", &["config.toml", "1"]),
    ("a key twice", "[agent]\nmax_steps = 1\nmax_steps = 2 # @\n", &["config.toml", "3"]),
    (
        "a profile that is not there",
        "[provider]\nactive = \"missing\"\n[providers.a]\napi_key = \"@\"\n",
        &["config.toml", "2", "active"],
    ),
];

#[track_caller]
fn names(output: &Output, words: &[&str]) {
    let said = output.stderr.trim_end();
    for word in words {
        assert!(said.contains(word), "{word:?} is not named: {output:?}");
    }
    assert!(!output.stderr.contains(SECRET) && !output.stdout.contains(SECRET), "a secret is shown: {output:?}");
    assert!(said.starts_with("error: "), "{output:?}");
}

#[test]
fn a_broken_configuration_is_named_by_file_line_and_key_and_never_quoted() {
    for (what, text, words) in BROKEN {
        let env = TestEnv::new();
        env.write_config(&text.replace('@', SECRET));
        let output = env.scv(&["exec", "hello"]);
        assert_eq!(output.status.code(), Some(2), "{what}: {output:?}");
        names(&output, words);
        let check = env.scv(&["config", "check"]);
        assert_eq!(check.status.code(), Some(2), "{what}: {check:?}");
        names(&check, words);
        env.finish();
    }
}

#[test]
fn a_home_without_configuration_says_what_to_do() {
    let env = TestEnv::new();
    let output = env.scv(&["exec", "hello"]);
    output.exits(2);
    // Without a file the defaults are in force, and all that is missing is a key.
    assert!(output.stderr.contains("OPENAI_API_KEY"), "{output:?}");
    env.finish();
}

#[test]
fn a_starter_is_written_once_for_its_owner_only() {
    let env = TestEnv::new().var("OPENAI_API_KEY", "sk-test");
    env.scv(&["config", "init"]).exits(0);
    let path = env.layout().config();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&path).unwrap();
    env.scv(&["config", "check"]).exits(0);
    let again = env.scv(&["config", "init"]);
    again.exits(2);
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "the person's file is left alone");
    env.finish();
}

#[test]
fn status_stop_and_the_path_work_with_a_broken_configuration() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start();
    env.write_config(&format!("[provider\nkey = {SECRET}\n"));
    env.scv(&["status"]).exits(0);
    let path = env.scv(&["config", "path"]);
    path.exits(0);
    assert_eq!(path.stdout.trim_end(), env.layout().config().to_str().unwrap());
    env.scv(&["sessions", "ls"]).exits(0);
    env.scv(&["stop"]).exits(0);
    env.supervisor_output().exits(0);
    env.finish();
}

#[test]
fn a_session_with_a_broken_configuration_fails_alone() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start();
    let mut first = scv_tests::Wire::plain(&env);
    let session = first.session(&env, &serde_json::json!({}));
    env.write_config(&format!("[agent]\nmax_steps = \"{SECRET}\"\n"));
    let mut second = scv_tests::Wire::plain(&env);
    let refused = second.ask(serde_json::json!({"type": "session.start", "cwd": env.work()}));
    assert_eq!(refused["type"], "error");
    let said = refused["message"].as_str().unwrap();
    assert!(said.contains("max_steps") && !said.contains(SECRET), "{said}");
    first.request(serde_json::json!({"type": "session.pause", "session_id": session, "paused": true}));
    first.until("the other session's answer", |event| event["paused"] == serde_json::json!(true));
    env.finish();
}

#[test]
fn no_secret_is_shown_not_even_in_part() {
    let env = TestEnv::new();
    env.write_config(&format!(
        "[provider]\nactive = \"a\"\n[providers.a]\nkind = \"openai-compatible\"\nmodel = \"m\"\n\
         base_url = \"http://127.0.0.1:9/v1\"\napi_key = \"{SECRET}\"\nheaders = {{ \"X-Token\" = \"{SECRET}\" }}\n"
    ));
    for args in [&["config", "show"][..], &["config", "show", "--all"]] {
        let shown = env.scv(args);
        shown.exits(0);
        assert!(shown.stdout.contains("127.0.0.1:9"), "{shown:?}");
        for part in ["sk-live", "never", "0123", "6789"] {
            assert!(!shown.stdout.contains(part) && !shown.stderr.contains(part), "{part}: {shown:?}");
        }
    }
    env.finish();
}

#[test]
fn a_project_may_not_weaken_anything() {
    const WEAKER: &[(&str, &str)] = &[
        ("[tools]\napproval_policy = \"never\"\n[provider]\nactive = \"other\"\n", "active"),
        ("[providers.fake]\nbase_url = \"http://127.0.0.1:1/v1\"\n", "providers"),
        ("[agents.codex]\ncommand = \"/bin/sh\"\n", "agents"),
        ("[channels.wechat.default]\nenabled = true\n", "channels"),
        ("[tools]\ncommand_timeout_seconds = 601\n", "command_timeout_seconds"),
        ("[web]\nenabled = true\nallow_private_addresses = true\n", "allow_private_addresses"),
    ];
    for (text, key) in WEAKER {
        let env = TestEnv::with_model("http://127.0.0.1:9/v1");
        env.file(".scv/config.toml", text);
        let output = env.scv(&["exec", "hello"]);
        assert_eq!(output.status.code(), Some(2), "{key}: {output:?}");
        assert!(output.stderr.contains(".scv/config.toml") && output.stderr.contains(key), "{key}: {output:?}");
        env.finish();
    }
}

#[test]
fn a_server_on_standard_streams_reads_the_configuration_that_it_is_pointed_at() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    let more = env.file("more.toml", "[context]\nmax_tokens = 54321\n");
    let env = env.var("SCV_CONFIG", more);
    for mut wire in [scv_tests::Wire::server(&env), scv_tests::Wire::worker(&env)] {
        wire.initialize(&[]);
        let started = wire.ask(serde_json::json!({"type": "session.start", "cwd": env.work()}));
        assert_eq!(started["context_max_tokens"], 54321, "{started}");
    }
    env.finish();
}
