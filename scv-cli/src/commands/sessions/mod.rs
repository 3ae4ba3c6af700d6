//! `scv sessions`: durable sessions.

mod attach;
mod log;
mod resume;

use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use serde::Serialize;
use shared::client::Client;
use shared::protocol::SessionId;
use shared::protocol::control::{Command, SessionEntry, SessionList};
use shared::{clock, text};

use super::{Listing, ids};
use crate::context::{Context, block_on};
use crate::error::CliError;
use crate::{output, start};

/// `scv sessions`
#[derive(Debug, Subcommand)]
pub(crate) enum Sessions {
    /// Lists them; with `--all` closed ones too
    Ls(List),
    /// Shows what happens in one, and answers what it asks; Ctrl+C leaves it as it is
    Attach(attach::Attach),
    /// Tells what happened in one
    Log(log::Log),
    /// Runs the prompts that wait in a paused one
    Resume(resume::Resume),
    /// Ends a session's processes; its data stays
    Stop(Named),
    /// Ends a session and removes its data
    Rm(Named),
}

/// `scv sessions ls`
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    listing: Listing,
    /// The newest ones only
    #[arg(short = 'n', long, value_name = "NUMBER")]
    limit: Option<usize>,
}

/// A verb on one session.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its id, or a start of it that no other session has
    #[arg(value_name = "ID")]
    session: String,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Sessions {
    /// Runs the verb.
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        match &self {
            Self::Attach(attach) => return attach.run(context),
            Self::Log(log) => return log.run(context),
            Self::Resume(resume) => return resume.run(context),
            Self::Ls(_) | Self::Stop(_) | Self::Rm(_) => {}
        }
        block_on(async {
            let mut client = start::connect(context, "scv-sessions", &[]).await?;
            match self {
                Self::Ls(list) => {
                    let list_all = SessionList { all: list.listing.all, ..SessionList::default() };
                    let entries = entries(&mut client, list_all, list.limit).await?;
                    if list.listing.json {
                        output::json(&entries.iter().map(Listed::from).collect::<Vec<_>>())?;
                    } else if !(entries.is_empty() && context.quiet) {
                        output::table(&rows(&entries, clock::to_unix_ms(SystemTime::now())))?;
                    }
                    Ok(())
                }
                // Done above.
                Self::Attach(_) | Self::Log(_) | Self::Resume(_) => Ok(()),
                Self::Stop(named) => {
                    let session_id = named.resolve(&mut client).await?;
                    client.control(Command::SessionStop { session_id }).await?;
                    named.say(context, session_id, "stopped")
                }
                Self::Rm(named) => {
                    let session_id = named.resolve(&mut client).await?;
                    client.control(Command::SessionRemove { session_id }).await?;
                    named.say(context, session_id, "removed")
                }
            }
        })
    }
}

impl Named {
    async fn resolve(&self, client: &mut Client) -> Result<SessionId, CliError> {
        if let Ok(id) = self.session.parse() {
            return Ok(id);
        }
        let list = SessionList { all: true, starts_with: Some(self.session.clone()), ..SessionList::default() };
        // Two are too many already.
        let entries = entries(client, list, Some(2)).await?;
        let ids: Vec<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
        ids::SESSION.find(&self.session, &ids).and_then(|id| {
            id.parse().map_err(|_| CliError::failed(format!("the supervisor lists a session with the bad id {id}")))
        })
    }

    fn say(&self, context: &Context, id: SessionId, done: &str) -> Result<(), CliError> {
        if self.json {
            output::json(&serde_json::json!({ "id": id, "done": done }))?;
        } else if !context.quiet {
            output::line(&format!("{done} {id}"))?;
        }
        Ok(())
    }
}

/// Page after page, newest first, up to `limit` sessions.
pub(super) async fn entries(
    client: &mut Client,
    mut list: SessionList,
    limit: Option<usize>,
) -> Result<Vec<SessionEntry>, CliError> {
    let limit = limit.unwrap_or(usize::MAX);
    let mut entries = Vec::new();
    loop {
        let status = client.control(Command::Sessions(list.clone())).await?;
        let sessions = status.sessions.unwrap_or_default();
        entries.extend(sessions.entries.unwrap_or_default());
        match sessions.next {
            // Always further down, whatever the server says: this ends.
            Some(next) if entries.len() < limit && list.before.is_none_or(|before| next < before) => {
                list.before = Some(next);
            }
            _ => break,
        }
    }
    entries.truncate(limit);
    Ok(entries)
}

/// A session as `ls --json` documents it: every field always there. Times are Unix milliseconds.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    id: &'a str,
    title: Option<&'a str>,
    cwd: &'a std::path::Path,
    state: shared::protocol::control::SessionState,
    reason: Option<&'a str>,
    clients: u32,
    worker_pid: Option<i32>,
    memory_bytes: Option<u64>,
    cpu_ms: Option<u64>,
    turn: Option<&'a str>,
    queue: u32,
    approvals: u32,
    jobs: u32,
    created: u64,
    last_active: u64,
    last_prompt: Option<&'a str>,
}

impl<'a> From<&'a SessionEntry> for Listed<'a> {
    fn from(entry: &'a SessionEntry) -> Self {
        Self {
            id: &entry.id,
            title: entry.title.as_deref(),
            cwd: &entry.cwd,
            state: entry.state,
            reason: entry.reason.as_deref(),
            clients: entry.clients,
            worker_pid: entry.worker_pid,
            memory_bytes: entry.memory_bytes,
            cpu_ms: entry.cpu_ms,
            turn: entry.turn.as_deref(),
            queue: entry.queue,
            approvals: entry.approvals,
            jobs: entry.jobs,
            created: entry.created_unix_ms,
            last_active: entry.last_active_unix_ms,
            last_prompt: entry.last_prompt.as_deref(),
        }
    }
}

fn rows(entries: &[SessionEntry], now_unix_ms: u64) -> Vec<Vec<String>> {
    let header = ["ID", "STATE", "CLIENTS", "ACTIVE", "DIRECTORY", "WHAT"].map(String::from).to_vec();
    let row = |entry: &SessionEntry| {
        let state = serde_json::to_value(entry.state).ok().and_then(|state| state.as_str().map(String::from));
        // A session that never had a worker of this supervisor may have no time yet.
        let active = match entry.last_active_unix_ms.max(entry.created_unix_ms) {
            0 => String::new(),
            at => format!("{} ago", output::duration(Duration::from_millis(now_unix_ms.saturating_sub(at)))),
        };
        let what = [&entry.reason, &entry.activity, &entry.title, &entry.last_prompt].into_iter().flatten().next();
        vec![
            entry.id.clone(),
            state.unwrap_or_default(),
            entry.clients.to_string(),
            active,
            output::printable(&entry.cwd.display().to_string()),
            output::printable(&text::one_line(what.map_or("", String::as_str), 120)),
        ]
    };
    std::iter::once(header).chain(entries.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_tells_what_the_session_does() {
        let entry = SessionEntry {
            id: "01".into(),
            cwd: "/w".into(),
            last_active_unix_ms: 1000,
            last_prompt: Some("fix\nit".into()),
            ..Default::default()
        };
        assert_eq!(rows(&[entry], 13_000)[1], ["01", "idle", "0", "12 s ago", "/w", "fix it"]);
    }
}
