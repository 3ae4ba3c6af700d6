//! The real Codex behind the `agent` tool, from `scv exec` to the last process: one fake model
//! answers both the main agent and Codex.
//!
//! Codex's commands run under full permissions: its sandbox needs what not every machine allows.

mod conversations;
mod ends;
mod failures;
mod offers;
mod restarts;
mod turns;

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use scv_tests::fakes::model::{Model, Reply, Request};
use scv_tests::processes::Process;
use scv_tests::{Program, Talk, TestEnv, agents, eventually, wait};
use serde_json::{Value, json};

/// Configuration under which Codex works without a sandbox.
const FULL: &str = "[agents.codex]\npermissions = \"full\"\n";

/// The key of Codex's own provider: in its private home, and nowhere else.
const CODEX_KEY: &str = "codex-0123456789abcdef";

/// An instance with Codex installed and signed in at a fake model, in a workspace that is a git
/// repository, without which Codex refuses to work.
fn installed(config: &str) -> (TestEnv, Model) {
    let model = Model::start_blocking();
    let env = TestEnv::new().path(&agents::bin());
    env.configure(&model.url(), config);
    sign_in(&env, &model, &format!("experimental_bearer_token = \"{CODEX_KEY}\""));
    Program::start(env.command_at(Path::new("git")).args(["init", "--quiet"])).wait().exits(0);
    (env, model)
}

/// Writes Codex's own configuration; `key` is how its provider gets one.
fn sign_in(env: &TestEnv, model: &Model, key: &str) {
    let home = env.layout().agent_home("codex");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&home).unwrap();
    let config = format!(
        "model = \"codex-model\"\nmodel_provider = \"fake\"\ncheck_for_update_on_startup = false\n\n\
         [model_providers.fake]\nname = \"fake\"\nbase_url = \"{}\"\nwire_api = \"responses\"\n{key}\n\
         request_max_retries = 0\nstream_max_retries = 0\n\n\
         [analytics]\nenabled = false\n\n[features]\nplugins = false\n",
        model.url()
    );
    fs::write(home.join("config.toml"), config).unwrap();
}

/// A session of a client that is never asked, and that outlives it.
fn talk(config: &str) -> Talk {
    let (env, model) = installed(config);
    let more = json!({"auto_approve": true, "on_disconnect": "keep"});
    Talk::of(env, model, &["attach", "approvals"], &more)
}

/// The main agent's reply that hands `prompt` to Codex, with `more` arguments.
fn hand_over(prompt: &str, more: &Value) -> Reply {
    let mut arguments = json!({"agent": "codex", "prompt": prompt});
    for (name, value) in more.as_object().into_iter().flatten() {
        arguments[name] = value.clone();
    }
    Reply::new().call("agent", &arguments)
}

/// Codex's reply that runs `command`.
fn shell(command: &str) -> Reply {
    Reply::new().call("exec_command", &json!({"cmd": command}))
}

/// What Codex asks for is answered with `replies`.
fn codex_answers(model: &Model, replies: impl IntoIterator<Item = Reply>) {
    model.route(Request::is_codex, replies);
}

/// The requests of Codex so far.
fn codex_requests(model: &Model) -> Vec<Request> {
    wait(model.requests()).into_iter().filter(Request::is_codex).collect()
}

/// The result as the main agent's model got it in its last request.
#[track_caller]
fn told(model: &Model) -> Value {
    let last = wait(model.requests()).into_iter().rfind(Request::is_scv).expect("a request of the main agent");
    serde_json::from_str(last.last_output().expect("a result as its last item")).expect("one JSON object")
}

/// Hands `prompt` over in a turn of its own; the result.
#[track_caller]
fn delegate(talk: &mut Talk, prompt: &str, more: &Value) -> Value {
    talk.model.push(hand_over(prompt, more));
    talk.model.push(Reply::text("done"));
    let events = talk.turn("go");
    assert_eq!(events.last().unwrap()["type"], "turn.completed", "{}", talk.wire.report());
    told(&talk.model)
}

/// Starts a turn in which Codex runs `command`, which has to make the file `mark`; returns when
/// that is there.
#[track_caller]
fn at_work(talk: &mut Talk, command: &str, more: &Value) {
    codex_answers(&talk.model, [shell(command)]);
    talk.model.push(hand_over("work", more));
    talk.wire.prompt(&talk.session.clone(), "go");
    let mark = talk.env.work().join("mark");
    eventually("Codex's command runs", scv_tests::DEADLINE, || mark.exists());
}

/// What `scv agents ps` lists.
fn listed(env: &TestEnv) -> Vec<Value> {
    let output = env.scv(&["agents", "ps", "--json"]);
    serde_json::from_str(&output.exits(0).stdout).unwrap()
}

/// The one delegation on record, as its file has it.
#[track_caller]
fn record(env: &TestEnv) -> Value {
    let mut files = fs::read_dir(env.layout().delegations()).unwrap();
    let file = files.next().expect("a record").unwrap().path();
    assert!(files.next().is_none(), "one record");
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// The leader of the one delegation that runs.
#[track_caller]
fn leader(env: &TestEnv) -> Process {
    let pid = record(env)["process"]["pid"].as_i64().expect("it has started");
    Process::of(pid.try_into().unwrap()).expect("it runs")
}

/// No process and no record of a delegation is left, now.
#[track_caller]
fn assert_gone(env: &TestEnv) {
    assert_eq!(env.children(), [], "{}", scv_tests::env::list(&env.children()));
    assert_eq!(fs::read_dir(env.layout().delegations()).unwrap().count(), 0, "a record is left");
}
