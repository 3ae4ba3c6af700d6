//! The supervisor: whether it runs, of which release, and who starts it again.

use std::path::Path;

use shared::layout::Layout;
use shared::protocol::control::Status;

use super::facts::{Facts, Supervisor};
use super::finding::Finding;
use crate::holder::holder;

const CHECK: &str = "supervisor";

/// Looks.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    if facts.property("ActiveState") == "failed" && facts.status().is_none() {
        return vec![failed_unit(facts)];
    }
    match &facts.supervisor {
        Supervisor::Runs(status) => running(facts, status),
        Supervisor::Broken(error) => vec![Finding::error(CHECK, error)],
        Supervisor::Waits if facts.property("ActiveState") == "activating" => vec![Finding::fail(
            CHECK,
            format!("it does not come up: started {} times", facts.property("NRestarts")),
            log_of(facts),
        )],
        Supervisor::Waits => vec![Finding::ok(CHECK, "does not run; systemd starts it for the next command")],
        Supervisor::None => vec![not_running(&facts.context.layout)],
    }
}

fn running(facts: &Facts, status: &Status) -> Vec<Finding> {
    let under = match &status.service {
        Some(unit) => format!("as {unit}"),
        None if is_under_a_guard(status.pid) => "under its guard".to_owned(),
        None => "by hand".to_owned(),
    };
    let mut found = vec![Finding::ok(CHECK, format!("scvd {} runs {under} (pid {})", status.version, status.pid))];
    if status.version != shared::RELEASE {
        let says = format!("scvd {} runs, and this is scv {}", status.version, shared::RELEASE);
        found.push(Finding::warn(CHECK, says, "`scv restart` changes to the installed one; sessions go on"));
    } else if facts.scvd.as_ref().is_ok_and(|scvd| !runs_from(status.pid, scvd)) {
        let says = "it does not run from the program that is installed now";
        found.push(Finding::warn(CHECK, says, "`scv restart` changes to the installed one; sessions go on"));
    }
    if status.unguarded {
        let says = "its guard is gone: nobody starts it again if it dies";
        found.push(Finding::warn(CHECK, says, "`scv stop`, then `scv start` brings one"));
    }
    if status.service.is_none() && facts.property("UnitFileState") == "enabled" {
        let says = "it runs without systemd, which would start another one at boot";
        found.push(Finding::warn(CHECK, says, "`scv stop`, then `scv start` makes it a service"));
    }
    for worker in status.workers.iter().filter(|worker| worker.recent_deaths > 0) {
        let says = format!("session {} died {} times in the last minute", worker.role, worker.recent_deaths);
        found.push(Finding::warn(CHECK, says, format!("`scv sessions log {}` has what it said", worker.role)));
    }
    found
}

fn failed_unit(facts: &Facts) -> Finding {
    // Its result is that of the last try; a limit that was hit shows in their number alone.
    let (result, restarts) = (facts.property("Result"), facts.property("NRestarts"));
    let why = match restarts {
        "" | "0" => format!("its unit has failed ({result})"),
        restarts => format!("systemd has given up on it after {restarts} restarts ({result})"),
    };
    Finding::fail(CHECK, why, format!("{}; `scv start` tries again", log_of(facts)))
}

fn log_of(facts: &Facts) -> String {
    match &facts.service {
        Some(service) => service.journal_hint.clone(),
        None => format!("its log is {}", facts.context.layout.log().display()),
    }
}

fn not_running(layout: &Layout) -> Finding {
    if let Some(pid) = holder(layout) {
        let says = format!("scvd (pid {pid}) serves this home, and does not listen on {}", layout.socket().display());
        return Finding::fail(
            CHECK,
            says,
            format!("it makes its socket again within a minute; if not: kill -INT {pid}, then `scv start`"),
        );
    }
    if layout.stopped().exists() {
        return Finding::ok(CHECK, "was stopped on purpose; `scv start` starts it");
    }
    Finding::ok(CHECK, "does not run; the next command starts one")
}

fn is_under_a_guard(pid: i32) -> bool {
    let parent = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, after_name) = stat.rsplit_once(") ")?;
        let parent: i32 = after_name.split(' ').nth(1)?.parse().ok()?;
        std::fs::read(format!("/proc/{parent}/cmdline")).ok()
    };
    parent().is_some_and(|words| words.split(|byte| *byte == 0).any(|word| word == b"--guard"))
}

/// Whether a process runs from this file as it is now: one that was replaced reads `(deleted)`.
fn runs_from(pid: i32, program: &Path) -> bool {
    match (std::fs::read_link(format!("/proc/{pid}/exe")), program.canonicalize()) {
        (Ok(runs), Ok(program)) => runs == program,
        // What cannot be told is no reason to worry anybody.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_runs_from_its_own_program() {
        let own = std::process::id().cast_signed();
        assert!(runs_from(own, &std::env::current_exe().unwrap()));
        assert!(!runs_from(own, Path::new("/bin/sh")));
        assert!(!is_under_a_guard(own));
    }
}
