//! `scv start` and `scv stop`, activation, and what a kill of the supervisor costs.

use std::time::Duration;

use rustix::process::Signal;
use scv_tests::fakes::model::{Gate, Reply};
use scv_tests::systemd::Systemd;
use scv_tests::{DEADLINE, eventually};
use serde_json::json;

#[test]
fn start_installs_units_exec_works_and_stop_leaves_nothing() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    model.answer(|_| Some(Reply::text("The door is blue.")));
    let home = systemd.home(&model.url());

    let started = home.scv(&["start"]);
    started.exits(0);
    assert!(started.stdout.contains(&home.service()), "{started:?}");
    assert_eq!(systemd.property(&home.service(), "ActiveState"), "active");
    assert_eq!(systemd.property(&home.service(), "Type"), "notify");
    let answer = home.scv(&["exec", "Which colour has the door?"]);
    assert_eq!(answer.exits(0).stdout, "The door is blue.\n");
    let status = home.scv(&["status"]);
    assert!(status.exits(0).stdout.contains(&home.service()), "{status:?}");

    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
    assert_eq!(systemd.property(&home.service(), "ActiveState"), "inactive");
    assert_eq!(systemd.property(&home.socket(), "ActiveState"), "inactive");
    assert_eq!(systemd.property(&home.service(), "UnitFileState"), "disabled");
    // After a stop on purpose only `scv start` starts anything.
    let refused = home.scv(&["exec", "x"]);
    assert!(refused.exits(1).stderr.contains("scv start"), "{refused:?}");
    home.scv(&["start"]).exits(0);
    home.scv(&["stop", "--uninstall"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
    assert!(systemd.systemctl(&["list-unit-files", "scvd-*"]).contains("0 unit files"));
}

#[test]
fn a_killed_supervisor_is_started_again_and_a_turn_with_its_tool_goes_on() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    let gate = Gate::new();
    let held = gate.clone();
    model.answer(move |request| {
        let outputs = request.input().iter().filter(|item| item["type"] == "function_call_output").count();
        let call = json!({"command": "read line < gate; echo \"$line\""}).to_string();
        Some(match outputs {
            0 => Reply::text("Working. ").call_as("c-1", "bash", &call),
            _ => Reply::text("Done.").stall(&held.clone()),
        })
    });
    let home = systemd.home(&model.url());
    home.scv(&["start"]).exits(0);
    systemd.user(&["mkfifo", "/home/scvtest/gate"]).exits(0);
    let mut wire = home.wire(&["attach", "approvals"]);
    let session = home.session(&mut wire);
    wire.prompt(&session, "go");
    wire.approve();
    wire.until_type("tool.started");
    let tool = || systemd.ours().into_iter().find(|process| process.name == "bash");
    eventually("the tool runs", DEADLINE, || tool().is_some());
    let tool = tool().unwrap();
    assert!(tool.cgroup().contains(&format!("/{}/scv-{}-", home.slice(), home.instance())), "{}", tool.cgroup());
    assert!(tool.cgroup().contains("/run-bash-"), "{}", tool.cgroup());
    let [before] = &systemd.running("scvd")[..] else { panic!("one supervisor") };
    let before = before.clone();

    before.signal(Signal::KILL);
    eventually("another supervisor is ready", DEADLINE, || {
        systemd.running("scvd").iter().any(|scvd| scvd.pid != before.pid) && home.connect().is_ok()
    });
    let status = home.status();
    assert_eq!(status["sessions"]["live"], 1, "{status}");
    assert!(tool.is_alive());

    systemd.user(&["sh", "-c", "echo open > /home/scvtest/gate"]).exits(0);
    let done = wire.until_type("tool.completed");
    assert!(done["success"] == true && done["output"].as_str().unwrap().contains("open"), "{done}");
    gate.release();
    let end = wire.turn().pop().expect("its end");
    assert_eq!(end["type"], "turn.completed");
    drop(wire);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(Duration::from_secs(10));
}

#[test]
fn what_a_session_uses_is_told_with_what_its_tools_use() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    // Some work for the processor, in a child of a child.
    super::runs_one_command(&model, "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'");
    let home = systemd.home(&model.url());
    home.scv(&["start"]).exits(0);
    let mut wire = home.wire(&["attach", "approvals"]);
    let session = home.session(&mut wire);
    let of_worker = || {
        let status = home.status();
        let workers = status["workers"].as_array().unwrap().clone();
        workers.into_iter().find(|worker| worker["role"] == session.as_str()).expect("its worker")
    };
    let before = of_worker()["cpu_ms"].as_u64().expect("the kernel counts it without a controller");
    wire.prompt(&session, "go");
    wire.approve();
    wire.turn();
    let after = of_worker();
    assert!(after["cpu_ms"].as_u64().unwrap() > before, "{before} ms before, then {after}");
    // The controller is there or not, and nothing else decides.
    let scope = format!("{}/scv-{}-{}.scope", home.slice(), home.instance(), after["id"].as_str().unwrap());
    let counted =
        systemd.root(&["sh", "-c", &format!("ls /sys/fs/cgroup/user.slice/*/*/scv.slice/{scope}/memory.current")]);
    assert_eq!(after["memory_bytes"].is_u64(), counted.status.success(), "{after}");

    let listed: serde_json::Value =
        serde_json::from_str(&home.scv(&["sessions", "ls", "--json"]).exits(0).stdout).unwrap();
    assert!(listed[0]["cpu_ms"].as_u64().unwrap() > before, "{listed}");
    assert_eq!(listed[0]["memory_bytes"].is_u64(), counted.status.success(), "{listed}");
    let shown = home.scv(&["status"]);
    let line = shown.exits(0).stdout.lines().find(|line| line.contains(&session)).map(str::to_owned);
    assert!(line.as_ref().is_some_and(|line| line.contains("of processor time")), "{shown:?}");
    drop(wire);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}
