//! What a logout ends: nothing with linger, everything without; and what comes back.

use std::time::Duration;

use scv_tests::fakes::model::{Model, Reply};
use scv_tests::systemd::{Home, Systemd};
use scv_tests::{DEADLINE, Program, Wire, eventually};

use super::runs_one_command;

/// Logs the user in; they are logged in until the program ends.
fn log_in(systemd: &Systemd) -> Program {
    // Ended by the end of its standard input.
    let login =
        systemd.start_root(&["runuser", "-l", "scvtest", "-c", "loginctl show-user scvtest -p Sessions; exec cat"]);
    let told = login.stdout_until("the session", |text| text.contains('\n'));
    assert!(told.trim_end().len() > "Sessions=".len(), "logind knows of a session: {told:?}");
    login
}

fn log_out(login: Program) {
    login.wait().exits(0);
}

/// A session whose tool runs.
fn at_work(systemd: &Systemd, home: &Home<'_>) -> (Wire, String) {
    let mut wire = home.wire(&["attach", "approvals"]);
    let session = home.session(&mut wire);
    wire.prompt(&session, "go");
    wire.approve();
    eventually("the tool runs", DEADLINE, || sleeps(systemd));
    (wire, session)
}

fn sleeps(systemd: &Systemd) -> bool {
    systemd.processes().iter().any(|process| process.name == "sleep")
}

fn booted() -> (Systemd, Model) {
    let systemd = Systemd::boot();
    // logind keeps a user's manager for 10 s after the last logout, in case they come back.
    let at_once = "mkdir -p /etc/systemd/logind.conf.d && printf '[Login]\\nUserStopDelaySec=0\\n' \
                   > /etc/systemd/logind.conf.d/at-once.conf && systemctl restart systemd-logind";
    systemd.root(&["sh", "-c", at_once]).exits(0);
    let model = systemd.model();
    runs_one_command(&model, "exec sleep 4444");
    (systemd, model)
}

#[test]
fn with_linger_a_logout_ends_nothing() {
    let (systemd, model) = booted();
    let home = systemd.home(&model.url());
    let login = log_in(&systemd);
    let started = home.scv(&["start"]);
    assert!(started.exits(0).stderr.is_empty(), "no warning: {started:?}");
    let (wire, _) = at_work(&systemd, &home);
    let before = systemd.running("scvd");
    log_out(login);
    eventually("the session is over", DEADLINE, || {
        systemd.root(&["loginctl", "show-user", "scvtest", "-p", "Sessions", "--value"]).stdout.trim().is_empty()
    });
    assert_eq!(home.status()["sessions"]["live"], 1);
    assert_eq!(systemd.running("scvd")[0].pid, before[0].pid);
    assert!(sleeps(&systemd));
    drop(wire);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}

/// Field report D1, and the stated limit: without linger the user manager goes, and all with it.
#[test]
fn without_linger_a_logout_ends_everything_and_the_next_login_brings_the_sessions_back() {
    let (systemd, model) = booted();
    let home = systemd.home(&model.url());
    let login = log_in(&systemd);
    systemd.root(&["loginctl", "disable-linger", "scvtest"]).exits(0);
    let started = home.scv(&["start"]);
    assert!(started.exits(0).stderr.contains("loginctl enable-linger scvtest"), "{started:?}");
    let status = home.scv(&["status"]);
    assert!(status.exits(0).stdout.contains("loginctl enable-linger scvtest"), "{status:?}");
    let (mut wire, session) = at_work(&systemd, &home);
    log_out(login);
    systemd.nothing_of_ours_is_left(Duration::from_secs(30));
    eventually("nothing sleeps any more", DEADLINE, || !sleeps(&systemd));
    wire.until_closed();

    model.answer(|_| Some(Reply::text("Done.")));
    let login = log_in(&systemd);
    eventually("the units came up with the manager", DEADLINE, || home.connect().is_ok());
    let mut wire = home.wire(&["attach", "approvals"]);
    let attached = wire.ask(serde_json::json!({"type": "session.attach", "session_id": session, "after_seq": 0}));
    assert_eq!(attached["type"], "session.attached", "{}", wire.report());
    let past = wire.collect("the queue after the replay", |event| event["type"] == "queue.snapshot");
    let ends: Vec<_> = past.iter().filter(|event| event["type"] == "turn.failed").collect();
    assert_eq!(ends.len(), 1, "the turn is told once: {past:?}");
    wire.prompt(&session, "go on");
    let end = wire.turn().pop().unwrap();
    assert_eq!(end["type"], "turn.completed", "{end}");
    drop(wire);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
    log_out(login);
}
