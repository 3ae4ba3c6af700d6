//! A conversation with Codex goes on in the same thread, whatever happened in between.

use std::time::Duration;

use scv_tests::Attached;

use super::*;

/// Codex's own id of the thread of a request.
fn thread(request: &Request) -> String {
    let thread = request.body["prompt_cache_key"].as_str().expect("a thread").to_owned();
    assert_eq!(request.header("thread-id"), Some(thread.as_str()));
    thread
}

#[test]
fn a_handle_continues_the_same_thread_with_its_history() {
    let mut talk = talk("");
    codex_answers(
        &talk.model,
        [Reply::text("It is blue.").usage(20, 5, 0), Reply::text("It was blue.").usage(30, 6, 0)],
    );
    let first = delegate(&mut talk, "the door is blue", &json!({}));
    assert_eq!((&first["session"], &first["turn"]), (&json!("codex-1"), &json!(1)));
    // The handle names the agent, and a blank option counts as omitted.
    let more = json!({"agent": "", "session": "codex-1", "cwd": " "});
    let second = delegate(&mut talk, "what colour was the door?", &more);
    let told = ["session", "turn", "reply", "usage"].map(|name| second[name].clone());
    let usage = json!({"input_tokens": 30, "output_tokens": 6});
    assert_eq!(told, [json!("codex-1"), json!(2), json!("It was blue."), usage]);
    let asked = codex_requests(&talk.model);
    assert_eq!(thread(&asked[0]), thread(&asked[1]));
    let history = Value::from(asked[1].input().to_vec()).to_string();
    assert!(history.contains("the door is blue") && history.contains("It is blue."), "{history}");

    // The main agent's model never sees the id of the thread, and cannot use it.
    let id = thread(&asked[0]);
    let all = wait(talk.model.requests());
    assert!(all.iter().filter(|request| request.is_scv()).all(|request| !request.body.to_string().contains(&id)));
    let refused = talk.call("agent", &json!({"prompt": "x", "session": id}));
    assert_eq!(refused["error"], "invalid_arguments", "{refused}");
    assert_eq!(codex_requests(&talk.model).len(), 2);
}

#[test]
fn it_goes_on_after_the_worker_was_killed() {
    let mut talk = talk("");
    codex_answers(&talk.model, [Reply::text("It is blue."), Reply::text("It was blue."), Reply::text("new")]);
    delegate(&mut talk, "the door is blue", &json!({}));
    talk.env.worker_of(&talk.session).kill();
    talk.wire = Attached::to(&talk.env, &talk.session, 0).wire;
    let result = delegate(&mut talk, "what colour was the door?", &json!({"session": "codex-1"}));
    assert_eq!((&result["status"], &result["turn"]), (&json!("completed"), &json!(2)), "{result}");
    let asked = codex_requests(&talk.model);
    assert_eq!(thread(&asked[0]), thread(&asked[1]));
    let result = delegate(&mut talk, "something else", &json!({}));
    assert_eq!(result["session"], "codex-2", "no handle is used twice");
}

#[test]
fn a_thread_that_was_working_when_the_worker_died_goes_on() {
    let mut talk = talk(FULL);
    at_work(&mut talk, "touch mark; sleep 600", &json!({}));
    talk.env.worker_of(&talk.session).kill();
    talk.env.gone_within(Duration::from_secs(1), TestEnv::children);
    talk.wire = Attached::to(&talk.env, &talk.session, 0).wire;
    codex_answers(&talk.model, [Reply::text("continued")]);
    let result = delegate(&mut talk, "go on", &json!({"session": "codex-1"}));
    assert_eq!((&result["status"], &result["reply"]), (&json!("completed"), &json!("continued")), "{result}");
    let asked = codex_requests(&talk.model);
    assert_eq!(thread(&asked[0]), thread(&asked[1]));
}

#[test]
fn a_thread_that_codex_no_longer_knows_is_started_anew_and_said() {
    let mut talk = talk("");
    codex_answers(&talk.model, [Reply::text("one"), Reply::text("two")]);
    delegate(&mut talk, "first", &json!({}));
    let home = talk.env.layout().agent_home("codex");
    fs::remove_dir_all(home.join("sessions")).unwrap();
    for entry in fs::read_dir(&home).unwrap().flatten() {
        if entry.file_name().to_string_lossy().contains(".sqlite") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let result = delegate(&mut talk, "second", &json!({"session": "codex-1"}));
    assert_eq!((&result["status"], &result["session"]), (&json!("completed"), &json!("codex-2")), "{result}");
    assert!(result["note"].as_str().unwrap().contains("its history is gone"), "{result}");
    let asked = codex_requests(&talk.model);
    assert_ne!(thread(&asked[0]), thread(&asked[1]));
}

#[test]
fn a_session_that_was_closed_knows_no_handle_any_more() {
    let mut talk = talk("");
    codex_answers(&talk.model, [Reply::text("one"), Reply::text("two")]);
    delegate(&mut talk, "first", &json!({}));
    let markers = || fs::read_dir(talk.env.layout().conversations()).unwrap().count();
    assert_eq!(markers(), 1);
    talk.wire.request(json!({"type": "session.close", "session_id": talk.session}));
    talk.wire.until_closed();
    eventually("its mark is gone", Duration::from_secs(3), || markers() == 0);
    talk.wire = Attached::to(&talk.env, &talk.session, 0).wire;
    let refused = talk.call("agent", &json!({"prompt": "x", "session": "codex-1"}));
    assert_eq!(refused["error"], "invalid_arguments", "{refused}");
    let result = delegate(&mut talk, "second", &json!({}));
    assert_eq!(result["session"], "codex-2", "no handle is used twice");
}
