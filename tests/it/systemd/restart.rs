//! `scv restart` of a service: another process is its main one, and the manager has nothing to do.

use scv_tests::fakes::model::{Gate, Reply};
use scv_tests::systemd::{BIN, Systemd};
use scv_tests::{DEADLINE, eventually, wait};
use serde_json::json;

#[test]
fn the_unit_stays_active_with_another_main_process_and_the_same_socket() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    let gate = Gate::new();
    let held = gate.clone();
    model.answer(move |_| Some(Reply::new().delta("one ").stall(&held).delta("two")));
    let home = systemd.home(&model.url());
    home.scv(&["start"]).exits(0);
    let property = |name: &str| systemd.property(&home.service(), name);
    let mut wire = home.wire(&["attach", "approvals"]);
    let session = home.session(&mut wire);
    wire.prompt(&session, "go");
    wait(gate.reached());
    let workers = || {
        let status = home.status();
        let worker = status["workers"].as_array().unwrap().iter().find(|w| w["role"] == session.as_str()).cloned();
        worker.expect("its worker")["pid"].as_i64().unwrap()
    };
    let (before, worker) = (property("MainPID"), workers());
    for _ in 0..3 {
        let told = home.scv(&["restart"]);
        assert!(told.exits(0).stdout.contains("took over from pid"), "{told:?}");
    }
    eventually("the manager knows its main process", DEADLINE, || {
        property("MainPID").parse().ok() == home.status()["pid"].as_i64()
    });
    assert_ne!(property("MainPID"), before);
    assert_eq!((property("ActiveState"), property("NRestarts")), ("active".to_owned(), "0".to_owned()));
    assert_eq!(workers(), worker);
    assert_eq!(systemd.property(&home.socket(), "ActiveState"), "active");
    gate.release();
    assert_eq!(wire.turn().last().unwrap()["type"], "turn.completed");
    // The successor is what the manager starts again, and it stops as the first one did.
    let main = systemd.running("scvd").pop().unwrap();
    main.signal(rustix::process::Signal::KILL);
    eventually("it is started again", DEADLINE, || property("NRestarts") == "1" && home.connect().is_ok());
    assert_eq!(workers(), worker);
    drop(wire);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}

/// Field report C10.
#[test]
fn a_model_that_restarts_from_its_own_shell_goes_on() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    super::runs_one_command(&model, &format!("{BIN}/scv restart"));
    let home = systemd.home(&model.url());
    home.scv(&["start"]).exits(0);
    let mut wire = home.wire(&["attach", "approvals"]);
    let session = home.session(&mut wire);
    wire.prompt(&session, "go");
    wire.approve();
    let done = wire.until_type("tool.completed");
    assert!(done["output"].as_str().unwrap().contains("took over from pid"), "{done}");
    assert_eq!(wire.turn().last().unwrap()["type"], "turn.completed");
    assert_eq!(home.status()["sessions"]["live"], json!(1));
    assert_eq!(systemd.property(&home.service(), "NRestarts"), "0");
    drop(wire);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}
