//! `scv exec` on a real terminal.

use scv_tests::fakes::model::{Model, Reply};
use scv_tests::terminal::Terminal;
use scv_tests::{TestEnv, eventually};
use serde_json::json;

fn running() -> (TestEnv, Model) {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    env.start();
    (env, model)
}

fn write(model: &Model) {
    model.push(Reply::new().call("write", &json!({"path": "a.txt", "content": "hello\n", "mode": "create"})));
    model.push(Reply::text("that was it"));
}

#[test]
fn a_question_is_asked_with_what_it_is_about_and_yes_lets_it_happen() {
    let (env, model) = running();
    write(&model);
    let terminal = Terminal::scv(&env, &["exec", "write it"]);
    let screen = terminal.shows("[y/N]");
    assert!(screen.contains("a.txt") && screen.contains("hello"), "{screen}");
    terminal.keys(&["y", "Enter"]);
    let screen = terminal.shows("rc=");
    assert!(screen.contains("that was it") && screen.contains("rc=0"), "{screen}");
    assert_eq!(std::fs::read_to_string(env.work().join("a.txt")).unwrap(), "hello\n");
    drop(terminal);
    env.finish();
}

#[test]
fn no_is_the_default_and_has_an_exit_code_of_its_own() {
    let (env, model) = running();
    write(&model);
    let terminal = Terminal::scv(&env, &["exec", "write it"]);
    terminal.shows("[y/N]");
    terminal.keys(&["Enter"]);
    let screen = terminal.shows("rc=");
    assert!(screen.contains("rc=3"), "{screen}");
    assert!(!env.work().join("a.txt").exists());
    drop(terminal);
    env.finish();
}

#[test]
fn ctrl_c_cancels_the_turn_and_what_runs_in_it() {
    let (env, model) = running();
    model.push(Reply::new().call("bash", &json!({"command": "touch started; sleep 600"})));
    let terminal = Terminal::scv(&env, &["exec", "--yes", "take your time"]);
    eventually("the command runs", scv_tests::DEADLINE, || env.work().join("started").exists());
    // What runs, and how long it may.
    terminal.shows("bash");
    terminal.keys(&["C-c"]);
    let screen = terminal.shows("rc=");
    assert!(screen.contains("rc=130") && screen.contains("cancel"), "{screen}");
    drop(terminal);
    env.gone_within(std::time::Duration::from_secs(4), TestEnv::children);
    env.finish();
}
