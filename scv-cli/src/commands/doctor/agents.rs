//! The agent programs, as a worker finds them *in the service's environment*: what this shell
//! finds proves nothing.

use std::process::{Command, Stdio};

use shared::installed::AgentProgram;

use super::facts::{Facts, Whose};
use super::finding::Finding;

const CHECK: &str = "agents";

/// Has a worker look; our own programs are told of by their own check.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Ok(worker) = &facts.worker else { return Vec::new() };
    let mut command = Command::new(worker);
    command.arg("--scv-home").arg(facts.context.layout.home()).arg("--agents");
    command.env_clear().env("PATH", &facts.path.value).stdin(Stdio::null()).stderr(Stdio::null());
    command.envs(facts.context.env.iter().filter(|(name, _)| *name == "HOME"));
    let programs = command.output().ok().and_then(|output| read(&output.stdout));
    match programs {
        Some(programs) => judge(&programs, facts.path.of),
        None => vec![Finding::fail(
            CHECK,
            format!("{} --agents does not tell them", worker.display()),
            "install scv, scvd and scv-worker of one release into one directory",
        )],
    }
}

fn read(told: &[u8]) -> Option<Vec<AgentProgram>> {
    std::str::from_utf8(told).ok()?.lines().map(|line| serde_json::from_str(line).ok()).collect()
}

fn judge(programs: &[AgentProgram], whose: Whose) -> Vec<Finding> {
    let found = |program: &AgentProgram| {
        program.path.as_ref().map(|path| Finding::ok(CHECK, format!("{}: {}", program.product, path.display())))
    };
    let mut findings: Vec<Finding> = programs.iter().filter_map(found).collect();
    if findings.is_empty() {
        let commands: Vec<&str> = programs.iter().map(|program| program.command.as_str()).collect();
        let place = match whose {
            Whose::Supervisor | Whose::Unit => "in the service's PATH",
            Whose::Shell => "in PATH",
        };
        findings.push(Finding::warn(
            CHECK,
            format!("none found {place} (looked for {}): no work can be handed on", commands.join(", ")),
            "install one; if it is installed, name its full path in the configuration: [agents.<name>] command",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn found_agents_are_listed_with_their_full_path() {
        let program = |path: Option<&str>| AgentProgram {
            agent: "a".into(),
            product: "Agent A".into(),
            command: "a-cli".into(),
            path: path.map(Into::into),
        };
        let found = judge(&[program(Some("/n/bin/a-cli")), program(None)], Whose::Unit);
        assert_eq!(found, [Finding::ok(CHECK, "Agent A: /n/bin/a-cli")]);
        let none = judge(&[program(None)], Whose::Unit);
        assert_eq!(none[0].state, State::Warn);
        assert!(none[0].says.contains("a-cli"), "{}", none[0].says);
    }

    #[test]
    fn what_a_worker_prints_is_read_line_by_line() {
        let line = r#"{"agent":"a","product":"A","command":"a","path":null}"#;
        assert_eq!(read(format!("{line}\n{line}\n").as_bytes()).unwrap().len(), 2);
        assert_eq!(read(b"error\n"), None);
        assert_eq!(read(b""), Some(Vec::new()));
    }
}
