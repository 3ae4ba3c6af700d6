//! The supervisor is replaced while an agent works.

use scv_tests::fakes::model::Gate;

use super::*;

#[test]
fn an_agent_at_work_is_not_disturbed_by_a_restart() {
    let mut talk = talk(FULL);
    let gate = Gate::new();
    codex_answers(&talk.model, [shell("echo from codex"), Reply::new().stall(&gate).delta("It is built.")]);
    talk.model.push(hand_over("build it", &json!({})));
    talk.model.push(Reply::text("Done."));
    talk.wire.prompt(&talk.session.clone(), "go");
    wait(gate.reached());
    let agents = |talk: &Talk| {
        let mut pids: Vec<i32> = talk.env.children().iter().map(|child| child.pid).collect();
        pids.sort_unstable();
        pids
    };
    let before = agents(&talk);
    assert!(!before.is_empty());
    let scvd = talk.env.running("scvd").pop().unwrap();
    talk.env.scv(&["restart"]).exits(0);
    assert!(scvd.gone_within(scv_tests::DEADLINE));
    assert_eq!(agents(&talk), before);
    gate.release();
    let events = talk.wire.turn();
    assert_eq!(events.last().unwrap()["type"], "turn.completed");
    assert_eq!(told(&talk.model)["status"], "completed");
    assert_gone(&talk.env);
}
