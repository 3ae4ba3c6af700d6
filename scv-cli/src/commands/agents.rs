//! `scv agents`: delegated agents that run.

use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use shared::client::Client;
use shared::clock;
use shared::protocol::control::{Command, DelegationEntry};

use super::Listing;
use crate::context::{Context, block_on};
use crate::error::CliError;
use crate::output;

/// `scv agents`
#[derive(Debug, Subcommand)]
pub(crate) enum Agents {
    /// Lists those that run; with `--all` orphans too
    Ps(Listing),
    /// Ends one, or all that lost their session
    Kill(Kill),
}

/// `scv agents kill`
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Kill {
    /// The run, such as codex-3f09ab
    #[arg(value_name = "HANDLE")]
    handle: Option<String>,
    /// Every run whose owner is gone
    #[arg(long)]
    orphans: bool,
}

impl Agents {
    /// Asks the supervisor that runs; without one there are no agents, and none is started.
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        block_on(async {
            let mut client = Client::connect(&context.layout, "scv-agents", &[]).await?;
            match self {
                Self::Ps(list) => {
                    let status = client.control(Command::Delegations { all: list.all }).await?;
                    let entries = status.delegations.entries.unwrap_or_default();
                    if list.json {
                        output::json(&entries)?;
                    } else {
                        output::table(&rows(&entries, clock::to_unix_ms(SystemTime::now()) / 1000))?;
                    }
                    Ok(())
                }
                Self::Kill(Kill { handle, orphans }) => {
                    let command = Command::DelegationKill { handle: handle.clone(), orphans };
                    let killed = client.control(command).await?.delegations.killed.unwrap_or_default();
                    if let (Some(handle), true) = (&handle, killed.is_empty()) {
                        return Err(CliError::failed(format!("no agent with the handle {handle} runs"))
                            .hint("`scv agents ps --all` lists them"));
                    }
                    for handle in &killed {
                        output::line(&format!("ended {handle}"))?;
                    }
                    Ok(())
                }
            }
        })
    }
}

fn rows(entries: &[DelegationEntry], now_unix_seconds: u64) -> Vec<Vec<String>> {
    let header = ["HANDLE", "AGENT", "PID", "PROCESSES", "AGE", "STATE", "SESSION", "DIRECTORY"];
    let row = |entry: &DelegationEntry| {
        let age = Duration::from_secs(now_unix_seconds.saturating_sub(entry.started_unix_seconds));
        let state = match (entry.orphaned, entry.idle_since_unix_seconds) {
            (true, _) => "orphaned".into(),
            (false, Some(since)) => {
                format!("idle {}", output::duration(Duration::from_secs(now_unix_seconds.saturating_sub(since))))
            }
            (false, None) => "at work".into(),
        };
        vec![
            entry.handle.clone(),
            entry.agent.clone(),
            entry.pid.to_string(),
            entry.processes.to_string(),
            output::duration(age),
            state,
            entry.session.clone(),
            output::printable(&entry.cwd.display().to_string()),
        ]
    };
    std::iter::once(header.map(String::from).to_vec()).chain(entries.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_an_idle_and_a_working_agent_are_told_apart() {
        let entry = |orphaned, idle_since_unix_seconds| DelegationEntry {
            orphaned,
            idle_since_unix_seconds,
            started_unix_seconds: 100,
            ..Default::default()
        };
        let rows = rows(&[entry(false, None), entry(false, Some(130)), entry(true, Some(130))], 150);
        let states: Vec<(&str, &str)> = rows[1..].iter().map(|row| (row[4].as_str(), row[5].as_str())).collect();
        assert_eq!(states, [("50 s", "at work"), ("50 s", "idle 20 s"), ("50 s", "orphaned")]);
    }
}
