//! The bus over which workers get their scopes may die, or be missing.

use rustix::process::Signal;
use scv_tests::systemd::{Home, Systemd};
use scv_tests::{DEADLINE, eventually};
use serde_json::json;

/// The scopes of all workers that are there, and how many workers these are.
fn scopes(systemd: &Systemd, home: &Home<'_>) -> (usize, usize) {
    let workers = systemd.running("scv-worker");
    let scoped = workers.iter().filter(|worker| worker.cgroup().contains(&format!("/{}/scv-", home.slice()))).count();
    (scoped, workers.len())
}

#[test]
fn a_bus_that_was_killed_costs_no_session_and_no_scope() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    let home = systemd.home(&model.url());
    home.scv(&["start"]).exits(0);
    let mut wire = home.wire(&["attach"]);
    home.session(&mut wire);
    for round in 2..4 {
        // The spare is there, so the next worker is one that the new bus has to place.
        eventually("all have their scopes", DEADLINE, || scopes(&systemd, &home) == (round, round));
        let is_bus = |args: &[String]| args.iter().any(|arg| arg == "--session");
        let bus =
            systemd.processes().into_iter().find(|process| process.name == "dbus-daemon" && is_bus(&process.args));
        bus.expect("a bus").signal(Signal::KILL);
        let mut wire = home.wire(&["attach"]);
        home.session(&mut wire);
    }
    eventually("all have their scopes", DEADLINE, || scopes(&systemd, &home) == (4, 4));
    assert_eq!(home.status()["sessions"]["live"], 3);
    drop(wire);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}

#[test]
fn without_a_bus_no_worker_serves_unscoped_and_the_client_is_told_why() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    let home = systemd.home(&model.url());
    home.scv(&["start"]).exits(0);
    eventually("the spare has its scope", DEADLINE, || scopes(&systemd, &home) == (1, 1));
    systemd.systemctl(&["mask", "--runtime", "dbus.socket", "dbus.service"]);
    systemd.systemctl(&["stop", "dbus.socket", "dbus.service"]);
    let mut wire = home.wire(&["attach"]);
    let session = home.session(&mut wire);
    let mut second = home.wire(&["attach"]);
    let refused = second.ask(json!({"type": "session.start", "cwd": "/home/scvtest", "on_disconnect": "keep"}));
    assert_eq!(refused["type"], "error", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("scope"), "{refused}");
    assert_eq!(home.status()["sessions"]["live"], 1, "{session} goes on");

    systemd.root(&["sh", "-c", "rm -f /run/user/4242/systemd/user/dbus.*"]).exits(0);
    systemd.systemctl(&["daemon-reload"]);
    systemd.systemctl(&["start", "dbus.socket"]);
    home.session(&mut second);
    drop((wire, second));
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}
