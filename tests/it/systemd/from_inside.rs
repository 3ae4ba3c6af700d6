//! What a session's own tools see of the service, and what they may do to it.

use scv_tests::systemd::Systemd;
use scv_tests::{DEADLINE, eventually};

use super::runs_one_command;

/// Runs one prompt with one command; what the command printed.
fn output_of(systemd: &Systemd, command: &str) -> String {
    let model = systemd.model();
    runs_one_command(&model, command);
    let home = systemd.home(&model.url());
    home.scv(&["start"]).exits(0);
    let mut wire = home.wire(&["attach", "approvals"]);
    let session = home.session(&mut wire);
    wire.prompt(&session, "go");
    wire.approve();
    let done = wire.until_type("tool.completed");
    assert_eq!(done["success"], true, "{done}");
    let end = wire.turn().pop().unwrap();
    assert_eq!(end["type"], "turn.completed", "{end}");
    let output: serde_json::Value = serde_json::from_str(done["output"].as_str().unwrap()).unwrap();
    eventually("a supervisor serves", DEADLINE, || home.connect().is_ok());
    assert_eq!(home.status()["sessions"]["live"], 1);
    drop(wire);
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
    output["output"].as_str().unwrap().to_owned()
}

/// Field report C10.
#[test]
fn a_model_that_restarts_the_service_from_its_own_shell_goes_on() {
    let systemd = Systemd::boot();
    let output = output_of(
        &systemd,
        "export XDG_RUNTIME_DIR=/run/user/4242; unit=$(systemctl --user list-units --plain --no-legend 'scvd-*.service' | cut -d' ' -f1); \
         before=$(systemctl --user show --value -p MainPID $unit); systemctl --user restart $unit && \
         after=$(systemctl --user show --value -p MainPID $unit); [ $before != $after ] && echo another one",
    );
    assert_eq!(output, "another one\n");
}

#[test]
fn a_tool_is_not_confined_and_hears_nothing_of_the_service_manager() {
    let systemd = Systemd::boot();
    let output = output_of(
        &systemd,
        "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'; \
         env | grep -cE '^(NOTIFY_SOCKET|WATCHDOG_|LISTEN_|INVOCATION_ID|JOURNAL_STREAM)' || true",
    );
    assert_eq!(output, "NoNewPrivs:0\nSeccomp:0\n0\n");
}

/// Field report C10.
#[test]
fn a_model_that_stops_the_supervisor_from_its_own_shell_is_told_and_it_stays() {
    let systemd = Systemd::boot();
    let output =
        output_of(&systemd, "PATH=/opt/scv:$PATH; scv stop 2>&1; echo $?; scv status >/dev/null && echo serves");
    assert!(output.contains("refused inside a session of SCV"), "{output}");
    assert!(output.ends_with("2\nserves\n"), "{output}");
}
