//! Who may die under systemd, and what is gone then.

use std::time::Duration;

use rustix::process::Signal;
use scv_tests::processes::Process;
use scv_tests::systemd::{Home, Systemd};
use scv_tests::{DEADLINE, Wire, eventually};

use super::runs_one_command;

/// Leaves a child behind that no tree and no tag leads to, then waits.
const HIDES: &str = "setsid -f env -i /bin/sleep 3333; exec sleep 4444";

fn sleepers(systemd: &Systemd) -> Vec<Process> {
    systemd.processes().into_iter().filter(|process| process.name == "sleep").collect()
}

/// A session whose tool has left a hidden child and goes on.
fn at_work(systemd: &Systemd, home: &Home<'_>) -> (Wire, String, i32) {
    let mut wire = home.wire(&["attach", "approvals"]);
    let session = home.session(&mut wire);
    wire.prompt(&session, "go");
    wire.approve();
    eventually("both sleep", DEADLINE, || sleepers(systemd).len() == 2);
    let worker = home.status()["workers"].as_array().unwrap().iter().find(|w| w["role"] == session.as_str()).cloned();
    let pid = worker.expect("its worker")["pid"].as_i64().unwrap();
    // What the supervisor tells is a pid of its own namespace.
    let ours = systemd.running("scv-worker").into_iter().find(|worker| worker.inner_pid() == pid);
    (wire, session, ours.expect("it runs").pid)
}

#[test]
fn a_killed_worker_takes_everything_in_its_scope_with_it() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    runs_one_command(&model, HIDES);
    let home = systemd.home(&model.url());
    home.scv(&["start"]).exits(0);
    let (wire, _, worker) = at_work(&systemd, &home);
    Process::of(worker).unwrap().signal(Signal::KILL);
    eventually("nothing sleeps any more", DEADLINE, || sleepers(&systemd).is_empty());
    drop(wire);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}

#[test]
fn what_a_supervisor_and_its_worker_left_is_gone_before_the_next_one_is_ready() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    runs_one_command(&model, HIDES);
    let home = systemd.home(&model.url());
    home.scv(&["start"]).exits(0);
    let (wire, _, worker) = at_work(&systemd, &home);
    let scvd = systemd.running("scvd").pop().unwrap();
    // Stopped first, so that neither sees the other's end.
    scvd.signal(Signal::STOP);
    Process::of(worker).unwrap().signal(Signal::KILL);
    scvd.signal(Signal::KILL);
    eventually("the next one is ready", DEADLINE, || {
        systemd.property(&home.service(), "ActiveState") == "active"
            && systemd.running("scvd").iter().any(|now| now.pid != scvd.pid)
    });
    assert!(sleepers(&systemd).is_empty());
    drop(wire);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}

#[test]
fn the_end_of_a_call_is_that_of_its_cgroup() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    // The second one changes its parent, its session, its environment and its limits.
    runs_one_command(
        &model,
        "setsid -f env -i /bin/sh -c 'ulimit -R unlimited 2>/dev/null; exec /bin/sleep 3333'; echo left",
    );
    let home = systemd.home(&model.url());
    home.scv(&["start"]).exits(0);
    let mut wire = home.wire(&["attach", "approvals"]);
    let session = home.session(&mut wire);
    wire.prompt(&session, "go");
    wire.approve();
    let done = wire.until_type("tool.completed");
    assert!(done["success"] == true && done["output"].as_str().unwrap().contains("left"), "{done}");
    assert!(sleepers(&systemd).is_empty());
    wire.turn();
    let runs = systemd.root(&["sh", "-c", "find /sys/fs/cgroup -name 'run-*' -type d | grep scv-"]);
    assert_eq!(runs.stdout, "", "a cgroup of a run is left");
    drop(wire);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}

/// Field report C11.
#[test]
fn a_process_that_is_left_in_the_cgroup_of_the_service_does_not_block_its_restart() {
    let systemd = Systemd::boot();
    let home = systemd.home("http://127.0.0.1:9/v1");
    home.scv(&["start"]).exits(0);
    let scvd = systemd.running("scvd").pop().unwrap();
    let left = systemd.start(&["sh", "-c", "trap '' TERM; echo $$; exec sleep 3333"]);
    let pid = left.stdout_until("its pid", |text| text.ends_with('\n'));
    let procs = format!("/sys/fs/cgroup{}/cgroup.procs", systemd.property(&home.service(), "ControlGroup"));
    systemd.root(&["sh", "-c", &format!("echo {} > {procs}", pid.trim_end())]).exits(0);
    scvd.signal(Signal::KILL);
    eventually("another one serves", DEADLINE, || {
        systemd.running("scvd").iter().any(|now| now.pid != scvd.pid) && home.connect().is_ok()
    });
    // What a shell says of SIGKILL: the script that runs it says the same.
    assert_eq!(left.wait().code(), 128 + 9);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}

#[test]
fn a_supervisor_that_hangs_is_replaced_by_the_watchdog_and_its_sessions_go_on() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    runs_one_command(&model, HIDES);
    let home = systemd.home(&model.url());
    home.scv(&["start"]).exits(0);
    let drop_in = format!(
        "mkdir -p ~/.config/systemd/user/{0}.d && printf '[Service]\\nWatchdogSec=1\\n' > ~/.config/systemd/user/{0}.d/short.conf",
        home.service()
    );
    systemd.user(&["bash", "-c", &drop_in]).exits(0);
    systemd.systemctl(&["daemon-reload"]);
    systemd.systemctl(&["restart", &home.service()]);
    let (mut wire, _, _) = at_work(&systemd, &home);
    let hung = systemd.running("scvd").pop().unwrap();
    hung.signal(Signal::STOP);
    eventually("another one serves", DEADLINE, || {
        systemd.running("scvd").iter().any(|now| now.pid != hung.pid) && home.connect().is_ok()
    });
    assert_eq!(home.status()["sessions"]["live"], 1);
    assert_eq!(sleepers(&systemd).len(), 2);
    // The session is live for its client, too.
    wire.send(&serde_json::json!({"type": "daemon.control", "request_id": "c", "command": {"action": "status"}}));
    wire.until("an answer through the worker", |event| event["request_id"] == "c");
    drop(wire);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(Duration::from_secs(15));
}

#[test]
fn a_socket_that_is_removed_comes_back_and_sessions_go_on() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    runs_one_command(&model, HIDES);
    let home = systemd.home(&model.url());
    std::fs::write(
        systemd.path(&home.path).join("config.toml"),
        std::fs::read_to_string(systemd.path(&home.path).join("config.toml")).unwrap()
            + "\n[supervisor]\nreconcile_seconds = 1\n",
    )
    .unwrap();
    home.scv(&["start"]).exits(0);
    let (wire, _, _) = at_work(&systemd, &home);
    std::fs::remove_file(systemd.path(&home.path).join("state/server.sock")).unwrap();
    eventually("it is back", DEADLINE, || home.connect().is_ok());
    assert_eq!(home.status()["sessions"]["live"], 1);
    assert_eq!(sleepers(&systemd).len(), 2);
    drop(wire);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}

#[test]
fn what_forks_for_ever_out_of_every_net_is_gone_with_its_call_and_with_its_session() {
    // Each generation leaves tree, group and marks behind, and is gone before it can be looked at.
    const LOOP: &str = "printf '%s\\n' 'n=0; while [ $n -lt 3 ]; do n=$((n+1)); /bin/sleep 0.01; done; \
                        setsid -f env -i PATH=/usr/bin:/bin sh \"$0\"' > /tmp/loop; \
                        for i in 1 2 3; do setsid -f env -i PATH=/usr/bin:/bin sh /tmp/loop; done";
    let systemd = Systemd::boot();
    let model = systemd.model();
    let home = systemd.home(&model.url());
    home.scv(&["start"]).exits(0);
    let looping =
        || systemd.processes().into_iter().filter(|one| one.args.iter().any(|arg| arg == "/tmp/loop")).count();

    runs_one_command(&model, LOOP);
    let mut wire = home.wire(&["attach", "approvals"]);
    let session = home.session(&mut wire);
    wire.prompt(&session, "go");
    wire.approve();
    let done = wire.until_type("tool.completed");
    assert_eq!(done["success"], true, "{done}");
    assert_eq!(looping(), 0);
    wire.turn();

    runs_one_command(&model, &format!("{LOOP}; exec sleep 4444"));
    let mut wire = home.wire(&["attach", "approvals"]);
    let session = home.session(&mut wire);
    wire.prompt(&session, "go");
    wire.approve();
    eventually("it forks", DEADLINE, || looping() > 0 && sleepers(&systemd).iter().any(|s| s.args[1] == "4444"));
    wire.request(serde_json::json!({"type": "session.close", "session_id": session}));
    eventually("it is closed", DEADLINE, || home.status()["sessions"]["live"] == 1);
    assert_eq!(looping(), 0);
    drop(wire);
    home.scv(&["stop"]).exits(0);
    let cgroups = systemd.root(&["sh", "-c", "find /sys/fs/cgroup -type d -path '*scv-*'"]);
    assert_eq!(cgroups.stdout, "", "a cgroup is left after the stop");
    systemd.nothing_of_ours_is_left(DEADLINE);
}
