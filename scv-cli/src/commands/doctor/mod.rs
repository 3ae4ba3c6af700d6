//! `scv doctor`: looks at everything that SCV stands on, and says what to do. Changes and starts
//! nothing, and works with a broken configuration and without a supervisor.

mod agents;
mod cgroups;
mod config;
mod disk;
mod facts;
mod finding;
mod home;
mod kernel;
mod linger;
mod manager;
mod path;
mod programs;
mod provider;
mod supervisor;
mod units;

use clap::Args;

use crate::context::Context;
use crate::error::{CliError, Kind};
use crate::output;
use facts::Facts;
use finding::{Finding, State};

/// Every check, in the order in which they are told: what the later ones stand on comes first.
const ALL: &[fn(&Facts) -> Vec<Finding>] = &[
    kernel::check,
    cgroups::check,
    manager::check,
    linger::check,
    home::check,
    disk::check,
    programs::check,
    config::check,
    provider::check,
    units::check,
    supervisor::check,
    path::check,
    agents::check,
];

/// `scv doctor`
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// Checks everything; fails if one thing does not work.
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        let facts = Facts::gather(context);
        let findings: Vec<Finding> = ALL.iter().flat_map(|check| check(&facts)).collect();
        if self.json {
            output::json(&findings)?;
        } else {
            for line in lines(&findings, context.quiet) {
                output::line(&line)?;
            }
        }
        let failed = findings.iter().any(|finding| finding.state == State::Fail);
        if failed { Err(CliError::silent(Kind::Failed)) } else { Ok(()) }
    }
}

/// The findings for people; `quiet` leaves out what is well.
fn lines(findings: &[Finding], quiet: bool) -> Vec<String> {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let mut lines = Vec::new();
    for finding in findings.iter().filter(|finding| !quiet || finding.state != State::Ok) {
        let Finding { check, state, says, todo } = finding;
        lines.push(format!("{:<4}  {check:<width$}  {}", state.word(), output::printable(says)));
        lines.extend(todo.iter().map(|todo| format!("      {:<width$}  → {}", "", output::printable(todo))));
    }
    let sum = match (count(State::Fail), count(State::Warn)) {
        (0, 0) => "everything is fine".to_owned(),
        (0, warn) => format!("it works; {warn} to look at"),
        (fail, 0) => format!("{fail} to mend"),
        (fail, warn) => format!("{fail} to mend, {warn} to look at"),
    };
    lines.extend((!quiet).then_some(sum));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_aligned_and_counted() {
        let findings = [
            Finding::ok("kernel", "Linux 6.1"),
            Finding::warn("linger", "sessions end at the last logout", "loginctl enable-linger ann"),
            Finding::fail("config", "there is\x1b no key", "remove it"),
        ];
        assert_eq!(
            lines(&findings, false),
            [
                "ok    kernel  Linux 6.1",
                "warn  linger  sessions end at the last logout",
                "              → loginctl enable-linger ann",
                "fail  config  there is\u{fffd} no key",
                "              → remove it",
                "1 to mend, 1 to look at",
            ]
        );
        assert_eq!(lines(&findings, true).len(), 4);
        assert_eq!(lines(&findings[..1], false)[1], "everything is fine");
        assert_eq!(lines(&findings[..2], false)[3], "it works; 1 to look at");
    }
}
