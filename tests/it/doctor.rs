//! `scv doctor`: what it finds, where it looks, and what it leaves alone.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use scv_tests::{Output, TestEnv};
use serde_json::Value;

/// Must not be shown.
const SECRET: &str = "sk-live-never-show-this-0123456789";

/// The findings of each check, as `state: says`.
fn findings(output: &Output) -> BTreeMap<String, Vec<String>> {
    let told: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let mut findings: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for finding in told.as_array().expect("a list") {
        let text = |key: &str| finding[key].as_str().unwrap_or_else(|| panic!("{key} of {finding}")).to_owned();
        if finding["state"] != "ok" {
            assert!(!text("todo").is_empty(), "it says what to do: {finding}");
        }
        findings.entry(text("check")).or_default().push(format!("{}: {}", text("state"), text("says")));
    }
    findings
}

fn doctor(env: &TestEnv) -> BTreeMap<String, Vec<String>> {
    findings(&env.scv(&["doctor", "--json"]))
}

/// An executable file `codex` in a directory of its own.
fn agent(env: &TestEnv) -> std::path::PathBuf {
    let dir = env.root().join("node/bin");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("codex"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(dir.join("codex"), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// Field report S6.
#[test]
fn a_broken_configuration_without_a_supervisor_is_told_and_nothing_is_started_or_shown() {
    let env = TestEnv::new();
    env.write_config(&format!("[provider]\nactive = \"a\"\napi_kee = \"{SECRET}\"\n"));
    for args in [&["doctor"][..], &["doctor", "--json"]] {
        let output = env.scv(args);
        output.exits(1);
        assert!(output.stdout.contains("config.toml line 3") && output.stdout.contains("api_kee"), "{output:?}");
        assert!(!output.stdout.contains(SECRET) && output.stderr.is_empty(), "{output:?}");
    }
    let found = doctor(&env);
    assert!(found["config"][0].starts_with("fail: "), "{found:?}");
    assert_eq!(found["supervisor"], ["ok: does not run; the next command starts one"]);
    assert!(found["programs"][0].starts_with("ok: ") && found["disk"].len() == 1, "{found:?}");
    assert!(!found.contains_key("provider"), "nothing is known of it: {found:?}");
    assert!(!env.layout().state().exists(), "it changes nothing");
    env.finish();
}

#[test]
fn with_a_supervisor_and_a_key_nothing_fails_and_the_key_is_not_shown() {
    let env = TestEnv::new();
    env.write_config(&format!("[providers.openai]\napi_key = \"{SECRET}\"\n"));
    env.start_guarded();
    let output = env.scv(&["doctor", "--json"]);
    output.exits(0);
    assert!(!output.stdout.contains(SECRET), "{output:?}");
    let found = findings(&output);
    let pid = env.running("scvd").pop().unwrap().pid;
    let expected = format!("ok: scvd {} runs under its guard (pid {pid})", shared::RELEASE);
    assert_eq!(found["supervisor"], [expected]);
    assert_eq!(found["provider"], ["ok: openai, model gpt-4.1-mini, key from the configuration"]);
    let text = env.scv(&["doctor"]);
    assert!(text.exits(0).stdout.lines().any(|line| line.starts_with("ok    kernel")), "{text:?}");
    env.finish();
}

#[test]
fn a_missing_key_fails_and_names_the_variable() {
    let env = TestEnv::new();
    let output = env.scv(&["--quiet", "doctor"]);
    assert!(output.exits(1).stdout.contains("OPENAI_API_KEY"), "{output:?}");
    assert!(!output.stdout.contains("ok "), "quiet tells what is wrong alone: {output:?}");
    env.finish();
}

/// Field report D2: what this shell finds proves nothing.
#[test]
fn agents_are_looked_for_where_the_supervisor_looks_not_where_this_shell_does() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    let dir = agent(&env);
    let path = format!("{}:/usr/bin:/bin", dir.display());
    let here = || {
        let output = scv_tests::Program::start(env.command("scv").args(["doctor", "--json"]).env("PATH", &path)).wait();
        findings(output.exits(0)).remove("agents").unwrap()
    };
    assert_eq!(here(), [format!("ok: Codex: {}", dir.join("codex").display())]);
    env.start();
    let found = here();
    assert!(found[0].starts_with("warn: none found in the service's PATH (looked for codex)"), "{found:?}");
    // The user's own install directory is always looked in.
    let own = env.root().join("home/.local/bin");
    fs::create_dir_all(&own).unwrap();
    fs::rename(dir.join("codex"), own.join("codex")).unwrap();
    assert_eq!(here(), [format!("ok: Codex: {}", own.join("codex").display())]);
    env.finish();
}

#[test]
fn a_home_that_others_can_change_fails_and_a_readable_configuration_warns() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    let home = env.layout().home().display().to_string();
    assert_eq!(doctor(&env)["home"], [format!("ok: {home} is yours alone to change")]);
    fs::set_permissions(env.layout().config(), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(doctor(&env)["home"], [format!("warn: {home}/config.toml can be read by others")]);
    fs::set_permissions(env.layout().config(), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
    let output = env.scv(&["doctor"]);
    assert!(output.exits(1).stdout.contains(&format!("chmod go-w {home}")), "{output:?}");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    env.finish();
}

#[test]
fn a_supervisor_without_its_socket_is_named_and_a_stop_on_purpose_is_no_fault() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start();
    let pid = env.running("scvd").pop().unwrap().pid;
    // Gone, and what is in the way keeps it from making another one.
    fs::remove_file(env.layout().socket()).unwrap();
    fs::create_dir(env.layout().socket()).unwrap();
    let found = doctor(&env);
    let says = format!("fail: scvd (pid {pid}) serves this home, and does not listen on");
    assert!(found["supervisor"][0].starts_with(&says), "{found:?}");
    fs::remove_dir(env.layout().socket()).unwrap();
    env.finish();

    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start();
    env.scv(&["stop"]).exits(0);
    assert_eq!(doctor(&env)["supervisor"], ["ok: was stopped on purpose; `scv start` starts it"]);
    env.finish();
}

/// Field report C10.
#[test]
fn a_stop_from_inside_a_session_is_refused_and_the_supervisor_stays() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start();
    let inside = scv_tests::Program::start(env.command("scv").arg("stop").env("SCV_SESSION", "s")).wait();
    assert!(inside.exits(2).stderr.contains("refused inside a session"), "{inside:?}");
    env.scv(&["status"]).exits(0);
    env.finish();
}
