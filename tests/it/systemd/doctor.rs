//! `scv doctor` where a service manager runs, and the `PATH` that the service gets.

use std::os::unix::fs::PermissionsExt as _;

use scv_tests::systemd::{Home, Systemd};
use scv_tests::{DEADLINE, eventually};
use serde_json::Value;

/// What one check found, as `state: says`.
fn check(home: &Home<'_>, check: &str) -> Vec<String> {
    let told = home.scv(&["doctor", "--json"]);
    let told: Value = serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{error}: {told:?}"));
    let ours = told.as_array().unwrap().iter().filter(|finding| finding["check"] == check);
    ours.map(|finding| format!("{}: {}", finding["state"].as_str().unwrap(), finding["says"].as_str().unwrap()))
        .collect()
}

/// The profile of a user with a version manager: noisy, and it adds a directory with an agent.
fn install_agent(systemd: &Systemd, version: &str) -> String {
    let bin = format!("/home/scvtest/.nvm/versions/{version}/bin");
    let outside = systemd.path(&bin);
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("codex"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(outside.join("codex"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let profile = format!("echo Welcome back\necho trouble >&2\n[ -n \"$PS1\" ] || return\nPATH=\"{bin}:$PATH\"\n");
    std::fs::write(systemd.path("/home/scvtest/.bash_profile"), profile).unwrap();
    systemd.root(&["chown", "-R", "scvtest:scvtest", "/home/scvtest"]).exits(0);
    bin
}

/// As a person types it: in a terminal.
fn in_a_terminal(systemd: &Systemd, command: &str) -> String {
    let output = systemd.user(&["env", "SHELL=/bin/bash", "script", "-qec", command, "/dev/null"]);
    output.exits(0);
    output.stdout
}

/// Field report D2.
#[test]
fn a_start_in_a_terminal_gives_the_service_the_path_of_the_login_shell_and_a_later_one_renews_it() {
    let systemd = Systemd::boot();
    let home = systemd.home("http://127.0.0.1:9/v1");
    let old = install_agent(&systemd, "v20");
    let started = in_a_terminal(&systemd, "scv start");
    assert!(!started.contains("warning") && started.contains(&home.service()), "{started}");
    assert_eq!(check(&home, "agents"), [format!("ok: Codex: {old}/codex")]);
    let mut wire = home.wire(&["attach"]);
    let session = home.session(&mut wire);
    let before = systemd.running("scvd").pop().unwrap();

    let same = in_a_terminal(&systemd, "scv start");
    assert!(same.contains("runs already"), "{same}");
    let new = install_agent(&systemd, "v22");
    std::fs::remove_dir_all(systemd.path(&old)).unwrap();
    assert!(check(&home, "agents")[0].starts_with("warn: none found in the service's PATH"));
    assert_eq!(check(&home, "path"), [format!("warn: a login shell also looks in {new}")]);
    let renewed = in_a_terminal(&systemd, "scv start");
    assert!(renewed.contains("runs again"), "{renewed}");
    assert_eq!(check(&home, "agents"), [format!("ok: Codex: {new}/codex")]);
    assert!(check(&home, "path")[0].starts_with("ok: PATH of the supervisor: "));
    assert!(systemd.running("scvd").iter().all(|scvd| scvd.pid != before.pid));
    // The session went on, and its client did not notice.
    assert_eq!(home.status()["sessions"]["live"], 1);
    wire.send(&serde_json::json!({"type": "session.pause", "request_id": "p", "session_id": session, "paused": true}));
    assert_eq!(wire.until_type("queue.snapshot")["paused"], true);
    drop(wire);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}

#[test]
fn a_profile_that_hangs_costs_a_warning_and_the_path_that_was_known() {
    let systemd = Systemd::boot();
    let home = systemd.home("http://127.0.0.1:9/v1");
    let bin = install_agent(&systemd, "v20");
    in_a_terminal(&systemd, "scv start");
    std::fs::write(systemd.path("/home/scvtest/.bash_profile"), "sleep 3333\n").unwrap();
    let again = in_a_terminal(&systemd, "scv start");
    assert!(again.contains("keeps the PATH that it has") && again.contains("did not come up"), "{again}");
    // Once: it asks the shell, too.
    let told = home.scv(&["doctor"]);
    assert!(told.exits(0).stdout.contains(&format!("Codex: {bin}/codex")), "{told:?}");
    assert!(told.stdout.contains("warn  path        the login shell's is not known"), "{told:?}");
    eventually("the profile is gone", DEADLINE, || systemd.processes().iter().all(|process| process.name != "sleep"));
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}

#[test]
fn doctor_tells_units_linger_and_the_supervisor_and_starts_nothing() {
    let systemd = Systemd::boot();
    let home = systemd.home("http://127.0.0.1:9/v1");
    assert!(check(&home, "units")[0].starts_with("warn: not installed"));
    home.scv(&["start"]).exits(0);
    let all = home.scv(&["doctor"]);
    all.exits(0);
    let service = home.service();
    assert_eq!(check(&home, "units"), [format!("ok: {service} is installed and starts at boot")]);
    assert!(check(&home, "supervisor")[0].contains(&format!("runs as {service}")));
    assert_eq!(check(&home, "linger"), ["ok: sessions go on after logout, and start at boot"]);
    systemd.root(&["sh", "-c", "rm /var/lib/systemd/linger/scvtest"]).exits(0);
    assert!(home.scv(&["doctor"]).exits(0).stdout.contains("→ loginctl enable-linger scvtest"));
    systemd.root(&["touch", "/var/lib/systemd/linger/scvtest"]).exits(0);

    // systemd listens alone: a look must not bring the supervisor up.
    systemd.systemctl(&["stop", &service]);
    eventually("it is gone", DEADLINE, || systemd.running("scvd").is_empty());
    assert_eq!(check(&home, "supervisor"), ["ok: does not run; systemd starts it for the next command"]);
    assert!(systemd.running("scvd").is_empty());

    let unit = systemd.path("/home/scvtest/.config/systemd/user").join(&service);
    std::fs::write(&unit, std::fs::read_to_string(&unit).unwrap() + "Nice=5\n").unwrap();
    assert_eq!(check(&home, "units"), [format!("warn: {service} is not as this release would write it")]);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}

#[test]
fn a_supervisor_that_dies_too_often_is_left_down_told_and_started_when_asked_for() {
    let systemd = Systemd::boot();
    let home = systemd.home("http://127.0.0.1:9/v1");
    home.scv(&["start"]).exits(0);
    let scvd = systemd.path("/opt/scv/scvd");
    let whole = scvd.with_file_name("scvd.whole");
    std::fs::rename(&scvd, &whole).unwrap();
    std::fs::write(&scvd, "#!/bin/sh\nexit 1\n").unwrap();
    std::fs::set_permissions(&scvd, std::fs::Permissions::from_mode(0o755)).unwrap();
    systemd.systemctl(&["kill", "--signal=KILL", &home.service()]);
    eventually("systemd has given up", DEADLINE, || systemd.property(&home.service(), "ActiveState") == "failed");
    let told = home.scv(&["doctor"]);
    assert!(
        told.exits(1).stdout.contains("systemd has given up on it after") && told.stdout.contains("journalctl"),
        "{told:?}"
    );
    let refused = home.scv(&["status"]);
    assert_ne!(refused.code(), 0, "{refused:?}");

    std::fs::rename(&whole, &scvd).unwrap();
    home.scv(&["start"]).exits(0);
    assert_eq!(systemd.property(&home.service(), "ActiveState"), "active");
    assert!(check(&home, "supervisor")[0].starts_with("ok: "));
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}
