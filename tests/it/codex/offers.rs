//! Which sessions offer Codex, and what an SCV inside of it may not do.

use scv_tests::env::binary_path;

use super::*;

/// The tools of a new session with `more` fields.
fn tools(env: &TestEnv, model: &Model, more: &Value) -> Vec<String> {
    model.push(Reply::text("hello"));
    let mut wire = scv_tests::Wire::plain(env);
    let session = wire.session(env, more);
    wire.prompt(&session, "hi");
    wire.turn();
    let asked = wait(model.requests()).pop().unwrap();
    asked.tools().into_iter().map(str::to_owned).collect()
}

#[test]
fn it_is_offered_where_it_is_installed_and_not_too_deep() {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    env.start();
    let offered = |more: Value| tools(&env, &model, &more).iter().any(|tool| tool == "agent");
    assert!(!offered(json!({})), "it is not on the PATH");
    let bin = env.root().join("home/.local/bin");
    fs::create_dir_all(&bin).unwrap();
    std::os::unix::fs::symlink(agents::program("codex"), bin.join("codex")).unwrap();
    assert!(offered(json!({})), "what was installed later is in new sessions");
    assert!(offered(json!({"delegation_depth": 1})));
    assert!(!offered(json!({"delegation_depth": 2})), "agent.max_delegation_depth is 2");
    assert!(!offered(json!({"no_tools": true})));
    env.finish();
}

#[test]
fn an_scv_inside_of_it_may_not_run_start_or_stop_a_supervisor() {
    let mut talk = talk(FULL);
    let scv = binary_path("scv");
    // Neither its own home nor ours.
    let own = format!("'{}'", scv.display());
    let ours = format!("{own} --scv-home '{}'", talk.env.layout().home().display());
    let tries = format!(
        "for scv in \"{own}\" \"{ours}\"; do for verb in run start stop; do \
         eval \"$scv $verb\" >>said 2>&1; echo $verb $? >>codes; done; done"
    );
    codex_answers(&talk.model, [shell(&tries), Reply::text("tried")]);
    assert_eq!(delegate(&mut talk, "stop it", &json!({}))["status"], "completed");
    let read = |name: &str| fs::read_to_string(talk.env.work().join(name)).unwrap();
    assert_eq!(read("codes"), "run 2\nstart 2\nstop 2\nrun 2\nstart 2\nstop 2\n", "{}", read("said"));
    assert_eq!(read("said").matches("is refused inside a delegated run").count(), 6, "{}", read("said"));
    assert_eq!(talk.env.running("scvd").len(), 1);
    assert_gone(&talk.env);
}
