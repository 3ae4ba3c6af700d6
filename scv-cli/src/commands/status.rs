//! `scv status`: how the supervisor is. Starts nothing.

use std::time::{Duration, SystemTime};

use clap::Args;
use shared::client::Client;
use shared::clock;
use shared::protocol::control::{Command, Status as Daemon, WorkerEntry};

use crate::context::{Context, block_on};
use crate::error::CliError;
use crate::output;
use crate::service::linger::{self, Linger};

/// Sessions whose use is shown; `scv sessions ls` has all.
const SESSIONS_SHOWN: usize = 10;

/// `scv status`
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The `status` object of `daemon.status`
    #[arg(long)]
    json: bool,
}

impl Status {
    /// Asks and prints; fails if no supervisor runs.
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        block_on(async {
            let mut client = Client::connect(&context.layout, "scv-status", &[]).await?;
            let status = client.control(Command::Status).await?;
            if self.json {
                output::json(&status)?;
            } else {
                let now = clock::to_unix_ms(SystemTime::now());
                let linger = status.service.as_ref().map(|_| linger::look(context));
                output::table(&rows(&status, &context.layout.home().display().to_string(), linger.as_ref(), now))?;
            }
            Ok(())
        })
    }
}

fn rows(status: &Daemon, home: &str, linger: Option<&Linger>, now_unix_ms: u64) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    let up = status.started_unix_ms.map(|started| Duration::from_millis(now_unix_ms.saturating_sub(started)));
    let up = up.map(|up| format!(", up {}", output::duration(up))).unwrap_or_default();
    row("supervisor", format!("scvd {} (pid {}){up}", status.version, status.pid));
    if let Some(unit) = &status.service {
        let after_logout = match linger {
            Some(Linger::On) => ", goes on after logout".to_owned(),
            Some(Linger::Off { command }) => format!(", ends at the last logout unless: {command}"),
            None => String::new(),
        };
        row("service", format!("{unit}{after_logout}"));
    }
    row("home", home.into());
    if status.unguarded {
        row(
            "guard",
            "gone: nobody starts the supervisor again if it dies; `scv stop` and `scv start` bring one".into(),
        );
    }
    let old = status.workers.iter().filter(|worker| worker.pid != 0 && worker.version != status.version);
    let mut releases: Vec<&str> = old.map(|worker| worker.version.as_str()).collect();
    if !releases.is_empty() {
        let count = releases.len();
        releases.dedup();
        row(
            "old workers",
            output::printable(&format!("{count} of release {}, renewed when idle", releases.join(", "))),
        );
    }
    if let Some(sessions) = &status.sessions {
        let at_rest = sessions.hibernated.map(|number| format!(", {number} at rest")).unwrap_or_default();
        row("sessions", format!("{} live, {} idle{at_rest}", sessions.live, sessions.idle));
    }
    if !status.workers.is_empty() {
        let spare = status.workers.iter().filter(|worker| worker.role == "spare").count();
        row("workers", format!("{}, {spare} spare{}", status.workers.len(), figures(&status.workers)));
    }
    for (session, uses) in by_session(&status.workers) {
        row("session", format!("{session}: {uses}"));
    }
    let agents = &status.delegations;
    row("agents", format!("{} at work, {} idle, {} orphans ended", agents.active, agents.idle, agents.reaped));
    if let Some(ended) = status.orphans_ended.filter(|ended| *ended > 0) {
        row("orphans", format!("{ended} processes of dead workers ended"));
    }
    if let Some(connections) = status.connections {
        row("clients", connections.to_string());
    }
    for worker in status.workers.iter().filter(|worker| worker.recent_deaths > 0) {
        row("crashes", format!("session {}: {} in the last minute", worker.role, worker.recent_deaths));
    }
    for component in &status.components {
        let text = |name: &str| component.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
        let error = if text("error").is_empty() { String::new() } else { format!(": {}", text("error")) };
        row("channel", output::printable(&format!("{} {}{error}", text("id"), text("state"))));
    }
    if let Some(reason) = &status.last_stop {
        row("last stop", output::printable(reason));
    }
    rows
}

/// What all of them use, where it is known.
fn figures(workers: &[WorkerEntry]) -> String {
    let sum = |figure: fn(&WorkerEntry) -> Option<u64>| {
        let known = || workers.iter().filter_map(figure);
        known().next().map(|_| known().sum())
    };
    let uses = output::uses(sum(|worker| worker.memory_bytes), sum(|worker| worker.cpu_ms));
    uses.map(|uses| format!(", {uses}")).unwrap_or_default()
}

/// The sessions that use most and what that is, where it is known.
fn by_session(workers: &[WorkerEntry]) -> Vec<(&str, String)> {
    let mut sessions: Vec<&WorkerEntry> = workers.iter().filter(|worker| worker.role != "spare").collect();
    sessions.sort_by_key(|worker| std::cmp::Reverse((worker.memory_bytes, worker.cpu_ms)));
    let known = sessions.iter().filter_map(|worker| {
        let uses = output::uses(worker.memory_bytes, worker.cpu_ms)?;
        Some((worker.role.as_str(), uses))
    });
    known.take(SESSIONS_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use shared::protocol::control::Sessions;

    use super::*;

    #[test]
    fn a_status_reads_in_a_few_lines() {
        let worker = |role: &str, recent_deaths| WorkerEntry { role: role.into(), recent_deaths, ..Default::default() };
        let status = Daemon {
            version: "0.1.0".into(),
            pid: 7,
            started_unix_ms: Some(1000),
            sessions: Some(Sessions { live: 2, idle: 1, hibernated: Some(12), ..Default::default() }),
            workers: vec![worker("spare", 0), worker("s-1", 2)],
            last_stop: Some("signal".into()),
            ..Default::default()
        };
        let rows: Vec<String> = rows(&status, "/h", None, 43_000).iter().map(|row| row.join(": ")).collect();
        assert_eq!(
            rows,
            [
                "supervisor: scvd 0.1.0 (pid 7), up 42 s",
                "home: /h",
                "sessions: 2 live, 1 idle, 12 at rest",
                "workers: 2, 1 spare",
                "agents: 0 at work, 0 idle, 0 orphans ended",
                "crashes: session s-1: 2 in the last minute",
                "last stop: signal",
            ]
        );
    }

    #[test]
    fn what_sessions_use_is_shown_where_it_is_known_the_most_first() {
        let worker = |role: &str, memory_bytes, cpu_ms| WorkerEntry {
            role: role.into(),
            memory_bytes,
            cpu_ms,
            ..Default::default()
        };
        let mib = |mib: u64| Some(mib << 20);
        let workers = [
            worker("spare", mib(1), Some(10)),
            worker("s-1", mib(2), Some(500)),
            worker("s-2", mib(300), Some(90_000)),
            worker("down", None, None),
        ];
        assert_eq!(figures(&workers), ", 303 MiB, 90 s of processor time");
        let told =
            [("s-2", "300 MiB, 90 s of processor time".into()), ("s-1", "2 MiB, 0.5 s of processor time".into())];
        assert_eq!(by_session(&workers), told);

        // No memory controller: the processor time is counted without one.
        let workers = [worker("s-1", None, Some(500)), worker("s-2", None, Some(1500))];
        assert_eq!(figures(&workers), ", 2.0 s of processor time");
        assert_eq!(by_session(&workers)[0], ("s-2", "1.5 s of processor time".into()));

        // Without a manager nothing is counted.
        let workers = [worker("spare", None, None), worker("s-1", None, None)];
        assert_eq!((figures(&workers), by_session(&workers)), (String::new(), vec![]));

        let many: Vec<WorkerEntry> = (0..50).map(|at| worker("s", Some(at), None)).collect();
        assert_eq!(by_session(&many).len(), SESSIONS_SHOWN);
    }

    #[test]
    fn a_service_says_what_a_logout_does() {
        let status = Daemon { service: Some("scvd-x.service".into()), ..Default::default() };
        let row = |linger| rows(&status, "/h", Some(&linger), 0).remove(1).remove(1);
        assert_eq!(row(Linger::On), "scvd-x.service, goes on after logout");
        let off = Linger::Off { command: "loginctl enable-linger ann".into() };
        assert_eq!(row(off), "scvd-x.service, ends at the last logout unless: loginctl enable-linger ann");
    }
}
