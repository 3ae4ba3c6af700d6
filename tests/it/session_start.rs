//! What a client may ask for in `session.start`, and what becomes of it where that cannot be had:
//! one sentence, nothing left behind, the others do not notice.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use scv_tests::env::binary_path;
use scv_tests::fakes::model::{Model, Reply};
use scv_tests::talk::streamed;
use scv_tests::{Program, Talk, TestEnv, Wire, wait};
use serde_json::{Value, json};

const NOBODY: &str = "http://127.0.0.1:9/v1";
const SECRET: &str = "sk-live-never-show-this-0123456789";

/// Asks for a session over a new connection; the answer.
#[track_caller]
fn ask(env: &TestEnv, more: &Value) -> Value {
    let mut message = json!({"type": "session.start", "cwd": env.work()});
    for (key, value) in more.as_object().unwrap() {
        message[key] = value.clone();
    }
    Wire::plain(env).ask(message)
}

#[track_caller]
fn refused(answer: &Value, code: &str, words: &[&str]) {
    assert_eq!((&answer["type"], &answer["code"]), (&json!("error"), &json!(code)), "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
    assert!(!message.contains(SECRET) && !message.contains('\n') && message.len() < 1000, "{message}");
}

fn sessions(env: &TestEnv) -> usize {
    fs::read_dir(env.layout().sessions()).map_or(0, Iterator::count)
}

#[test]
fn an_id_that_is_none_is_refused() {
    let env = TestEnv::with_model(NOBODY);
    env.start();
    for id in ["", "7", "../../etc", "not-a-uuid", "01a22e78-08a4-70ea-85bf-3f701f510e9", "%s%n", "\0", "{}"] {
        refused(&ask(&env, &json!({"session_id": id})), "invalid_request", &[]);
        refused(&ask(&env, &json!({"resume": id})), "invalid_request", &[]);
        let attach = json!({"type": "session.attach", "session_id": id, "after_seq": 0});
        refused(&Wire::plain(&env).ask(attach), "invalid_request", &[]);
    }
    let unknown = "01a22e78-08a4-70ea-85bf-3f701f510e9a";
    let attach = json!({"type": "session.attach", "session_id": unknown, "after_seq": 0});
    refused(&Wire::plain(&env).ask(attach), "session_not_found", &["no session"]);
    refused(&ask(&env, &json!({"resume": unknown})), "invalid_request", &[unknown]);
    assert_eq!(sessions(&env), 0, "nothing is left of what was refused");
    env.finish();
}

#[test]
fn a_field_that_cannot_be_met_is_named_and_nothing_is_left() {
    let env = TestEnv::with_model(NOBODY);
    env.start();
    let cases = [
        (json!({"provider": "nope"}), "provider.active"),
        (json!({"system_prompt": "x"}), "no_tools"),
        (json!({"cwd": "relative"}), "absolute"),
        (json!({"cwd": env.work().join("missing")}), "missing"),
        (json!({"cwd": env.file("a-file", "")}), "a-file"),
    ];
    for (more, word) in cases {
        refused(&ask(&env, &more), "invalid_request", &[word]);
    }
    for more in
        [json!({"cwd": 7}), json!({"delegation_depth": -1}), json!({"on_disconnect": "explode"}), json!({"chat": "x"})]
    {
        refused(&ask(&env, &more), "invalid_request", &[]);
    }
    assert_eq!(sessions(&env), 0);
    env.finish();
}

#[test]
fn a_broken_layer_of_the_configuration_is_named_at_the_start_and_harms_nobody() {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    let mut running = Talk::of(env, model, &[], &json!({}));
    let env = &running.env;
    let extra = env.root().join("extra.toml");
    fs::write(&extra, format!("[agent]\nmax_steps = \"{SECRET}\"\n")).unwrap();
    let client = |more: Value| {
        let mut client = json!({"env": {"PATH": "/usr/bin:/bin", "HOME": env.root()}});
        client.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"client": client})
    };
    // The layers of a client.
    refused(&ask(env, &client(json!({"config_path": extra}))), "invalid_request", &["extra.toml", "2", "max_steps"]);
    refused(&ask(env, &client(json!({"config_path": "/nope.toml"}))), "invalid_request", &["/nope.toml"]);
    refused(&ask(env, &client(json!({"overrides": {"agent.max_steps": "many"}}))), "invalid_request", &["max_steps"]);
    refused(&ask(env, &client(json!({"overrides": {"agent.nope": "1"}}))), "invalid_request", &["agent.nope"]);
    let vars = json!({"env": {"SCV_PROVIDER": "nope", "PATH": "/usr/bin"}});
    refused(&ask(env, &client(vars)), "invalid_request", &["SCV_PROVIDER", "openai"]);
    // The project's layer: broken, and one that loosens.
    for (text, words) in [
        ("[tools\n", ["config.toml", "1"]),
        ("[tools]\napproval_policy = \"never-ever\"\n", ["approval_policy", "on-risk"]),
        ("[provider]\nactive = \"evil\"\n", ["provider", "project"]),
        ("[providers.fake]\nbase_url = \"http://evil.example\"\n", ["providers", "project"]),
        ("[tools]\nmax_timeout_seconds = 86400\n", ["max_timeout_seconds", "project"]),
        ("[agents.codex]\ncommand = \"/bin/evil\"\n", ["agents", "project"]),
    ] {
        env.file(".scv/config.toml", text);
        refused(&ask(env, &json!({})), "invalid_request", &words);
    }
    fs::remove_dir_all(env.work().join(".scv")).unwrap();
    // The instance's own.
    let good = fs::read_to_string(env.layout().config()).unwrap();
    env.write_config(&format!("[providers.fake]\napi_key = \"{SECRET}\"\nmodl = 1\n"));
    refused(&ask(env, &json!({})), "invalid_request", &["config.toml", "3", "modl"]);
    assert_eq!(sessions(env), 1, "only the one that runs");
    // The session that was there goes on, and a mended file is enough for the next.
    running.model.push(Reply::text("still here"));
    assert_eq!(streamed(&running.turn("hello")), "still here");
    running.env.write_config(&good);
    running.neighbour();
}

#[test]
fn a_connection_outlives_a_start_that_was_refused_and_loses_nothing_behind_it() {
    let env = TestEnv::with_model(NOBODY);
    env.start();
    for mut wire in [Wire::connect(&env), Wire::server(&env), Wire::worker(&env)] {
        wire.initialize(&[]);
        env.file(".scv/config.toml", "[tools\n");
        let start = |id: &str| json!({"type": "session.start", "request_id": id, "cwd": env.work()});
        // What comes in one piece with the refused message is looked at all the same.
        let unknown = json!({"type": "weather.forecast", "request_id": "behind"});
        wire.send_bytes(format!("{}\n{unknown}\n", start("broken")).as_bytes()).unwrap();
        let refusal = wire.event();
        refused(&refusal, "invalid_request", &["config.toml", "1"]);
        assert_eq!((&refusal["request_id"], &refusal["fatal"]), (&json!("broken"), &json!(false)));
        assert_eq!(wire.event()["request_id"], "behind");
        fs::remove_dir_all(env.work().join(".scv")).unwrap();
        wire.session(&env, &json!({}));
    }
    env.finish();
}

#[test]
fn the_same_id_again_attaches_and_never_makes_two() {
    let talk = Talk::start();
    let again = ask(&talk.env, &json!({"session_id": talk.session}));
    assert_eq!((&again["type"], &again["session_id"]), (&json!("session.started"), &json!(talk.session)));
    assert_eq!(sessions(&talk.env), 1);
}

#[test]
fn a_session_has_one_worker_whoever_starts_a_second() {
    let talk = Talk::start();
    let mut second = Wire::worker(&talk.env);
    second.initialize(&[]);
    let answer = second.ask(json!({"type": "session.start", "cwd": talk.env.work(), "session_id": talk.session}));
    refused(&answer, "session_busy", &["another process has this session"]);
    let answer = second.ask(json!({"type": "session.attach", "session_id": talk.session, "after_seq": 0}));
    refused(&answer, "session_busy", &[]);
}

#[test]
fn a_workspace_that_goes_away_is_told_by_its_tools_and_at_the_next_attach() {
    let mut talk = Talk::start();
    fs::remove_dir(talk.env.work()).unwrap();
    for (name, arguments) in [
        ("bash", json!({"command": "true"})),
        ("read", json!({"path": "a"})),
        ("write", json!({"path": "a", "mode": "create", "content": "x"})),
    ] {
        let result = talk.call(name, &arguments);
        assert_eq!((&result["success"], &result["error"]), (&json!(false), &json!("failed")), "{result}");
    }
    fs::create_dir(talk.env.work()).unwrap();
}

/// A directory with `scvd` and, where there is a script, a `scv-worker` that is that.
fn installation(env: &TestEnv, worker: Option<&str>) -> PathBuf {
    let dir = env.root().join("bin");
    fs::create_dir(&dir).unwrap();
    fs::copy(binary_path("scvd"), dir.join("scvd")).unwrap();
    if let Some(script) = worker {
        let path = dir.join("scv-worker");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    dir
}

fn supervise(env: &TestEnv, scvd: &Path) -> Program {
    Program::start(env.command_at(scvd).arg("--scv-home").arg(env.layout().home()))
}

#[test]
fn a_supervisor_without_a_usable_worker_says_so_within_seconds_and_lives() {
    let workers = [
        None,
        Some("#!/bin/sh\necho scv-worker 99.7.5\nexit 2\n"),
        Some("#!/bin/sh\nexit 7\n"),
        Some("no program at all"),
        Some("#!/bin/sh\necho ready; exec sleep 600 >/dev/null 2>&1\n"),
    ];
    for worker in workers {
        let env = TestEnv::with_model(NOBODY);
        let program = supervise(&env, &installation(&env, worker).join("scvd"));
        let said = program.stdout_until("a first line", |text| text.contains('\n'));
        if said != "ready\n" {
            // It looked for its worker at once.
            assert!(said.starts_with("error: ") && said.contains("scv-worker"), "{worker:?}: {said}");
            program.wait().exits(2);
            env.finish();
            continue;
        }
        let start = Instant::now();
        refused(&ask(&env, &json!({})), "unavailable", &["scv-worker"]);
        assert!(start.elapsed() < Duration::from_secs(20), "{worker:?}: {:?}", start.elapsed());
        Wire::plain(&env).control(&json!({"action": "status"}));
        program.signal(rustix::process::Signal::INT);
        program.wait().exits(0);
        env.finish();
    }
}

#[test]
fn fifty_sessions_at_once_each_get_their_own_answer() {
    let model = Model::start_blocking();
    model.answer(|request| Some(Reply::text(&format!("you said {}", request.prompt()))));
    let env = TestEnv::with_model(&model.url());
    env.start();
    let mut wires: Vec<Wire> = (0..50).map(|_| Wire::plain(&env)).collect();
    for wire in &mut wires {
        wire.request(json!({"type": "session.start", "cwd": env.work(), "on_disconnect": "close"}));
    }
    let sessions: Vec<String> = wires
        .iter_mut()
        .map(|wire| wire.until_type("session.started")["session_id"].as_str().unwrap().to_owned())
        .collect();
    for (n, (wire, session)) in wires.iter_mut().zip(&sessions).enumerate() {
        wire.prompt(session, &format!("number {n}"));
    }
    for (n, wire) in wires.iter_mut().enumerate() {
        assert_eq!(streamed(&wire.turn()), format!("you said number {n}"));
    }
    assert_eq!(wait(model.requests()).len(), 50);
    drop(wires);
    // The spare stays.
    scv_tests::eventually("their workers leave and are collected", Duration::from_secs(20), || {
        env.running("scv-worker").len() <= 1 && env.zombies().is_empty()
    });
    env.finish();
}
