//! `daemon.control` on a connection that belongs to a session.

use scv_tests::fakes::model::Model;
use scv_tests::{TestEnv, Wire};
use serde_json::json;

#[test]
fn the_supervisor_answers_through_the_session_and_its_absence_is_said() {
    let model = Model::start_blocking();
    let env = TestEnv::with_model(&model.url());
    env.start();
    let mut wire = Wire::plain(&env);
    wire.session(&env, &json!({}));

    let answer = wire.ask(json!({"type": "daemon.control", "command": {"action": "status"}}));
    assert_eq!(answer["type"], "daemon.status");
    assert_eq!(answer["status"]["sessions"]["live"], 1);

    // A stopped supervisor takes the connection and says nothing.
    let scvd = env.running("scvd").remove(0);
    assert!(scvd.signal(rustix::process::Signal::STOP));
    let first = wire.request(json!({"type": "daemon.control", "command": {"action": "status"}}));
    let second = wire.ask(json!({"type": "daemon.control", "command": {"action": "status"}}));
    assert_eq!(second["code"], "unavailable", "one at a time");
    let answer = wire.until("the answer to the first", |event| event["request_id"] == first.as_str());
    assert_eq!(answer["code"], "unavailable");
    assert!(scvd.signal(rustix::process::Signal::CONT));

    let answer = wire.ask(json!({"type": "daemon.control", "command": {"action": "status"}}));
    assert_eq!(answer["type"], "daemon.status", "the session goes on");
    drop(wire);
    env.finish();
}
