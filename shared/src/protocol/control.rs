//! `daemon.control` and what it answers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::SessionId;
use super::client::Chat;

/// A request to the supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Command {
    /// Health and counts.
    Status,
    /// Reads the configuration again.
    Reload,
    /// The delegated agents that run.
    Delegations {
        /// Also orphans that wait for their end.
        #[serde(default)]
        all: bool,
    },
    /// Ends a delegated agent, or all orphans.
    DelegationKill {
        /// The run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        handle: Option<String>,
        /// Every orphan.
        #[serde(default)]
        orphans: bool,
    },
    /// The sessions of this home (ours).
    Sessions(SessionList),
    /// Closes a session: its processes end, its data stays (ours).
    SessionStop {
        /// The session.
        session_id: SessionId,
    },
    /// Removes a session and its data (ours).
    SessionRemove {
        /// The session.
        session_id: SessionId,
    },
    /// Ends the supervisor and everything it started (ours).
    Stop,
    /// A new supervisor, of the program that is installed now, takes over; sessions go on (ours).
    /// The new one answers; when the old one stays, it answers with an error that says why.
    Restart {
        /// Also replaces the workers of idle sessions, each when it is idle.
        #[serde(default)]
        when_idle: bool,
    },
    /// Streams what changes for lists (ours).
    Watch {
        /// What to watch: `sessions`, `approvals`, `jobs`, `components`; empty: all.
        #[serde(default)]
        topics: Vec<String>,
    },
    /// An action of a newer client.
    #[serde(other)]
    Unknown,
}

/// Which sessions are listed: a page of them, newest first. A page has what is left of 100 sessions,
/// so that it may be empty and not the last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionList {
    /// Also closed ones.
    pub all: bool,
    /// Page, from 0, of the sessions as they are now. Sessions that come or go move the pages.
    pub page: u32,
    /// Those before this id, the `next` of an earlier answer, instead of a page: whoever follows it
    /// gets every session that stays exactly once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<SessionId>,
    /// Only those whose id starts with this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_with: Option<String>,
    /// Only those that serve this chat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat: Option<Chat>,
}

/// The `status` object of `daemon.status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The supervisor's release.
    pub version: String,
    /// Its process.
    pub pid: i32,
    /// Chat accounts.
    pub components: Vec<serde_json::Value>,
    /// Delegated agents.
    pub delegations: Delegations,
    /// Sessions (ours).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Sessions>,
    /// Worker processes (ours).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerEntry>,
    /// The unit of systemd's user manager that it is (ours).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// When the supervisor started (ours).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_unix_ms: Option<u64>,
    /// Client connections now (ours).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<usize>,
    /// Why the supervisor stopped last, where known (ours).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_stop: Option<String>,
    /// Processes that a dead worker left and this supervisor ended (ours).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphans_ended: Option<u64>,
    /// Whether the guard that started the supervisor is gone: nobody starts it again (ours).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unguarded: bool,
    /// Why the configuration on disk is not the one in force (ours).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_error: Option<String>,
}

/// Delegated agents, counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delegations {
    /// Runs at work.
    pub active: u32,
    /// Live agents between turns.
    pub idle: u32,
    /// Orphans that this supervisor has ended.
    pub reaped: u64,
    /// The runs, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<DelegationEntry>>,
    /// What `delegation_kill` ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub killed: Option<Vec<String>>,
}

/// One delegated agent that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DelegationEntry {
    /// `<agent>-<6 hex>`, unique in the home.
    pub handle: String,
    /// The agent.
    pub agent: String,
    /// The session that called it.
    pub session: String,
    /// How deep it is delegated.
    pub depth: u32,
    /// Its process.
    pub pid: i32,
    /// The SCV process that owns it.
    pub owner_pid: i32,
    /// Processes of its tree now.
    pub processes: u32,
    /// Where it works.
    pub cwd: PathBuf,
    /// When it started.
    pub started_unix_seconds: u64,
    /// Whether its owner is gone.
    pub orphaned: bool,
    /// Its conversation, such as `codex-2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// The turn of that conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// Since when it waits between turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_since_unix_seconds: Option<u64>,
    /// Its own background jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background_jobs: Option<u32>,
}

/// Sessions, counted (ours).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sessions {
    /// With a worker.
    pub live: u32,
    /// Of these without a turn.
    pub idle: u32,
    /// Without a worker: hibernated, crashed or closed. Which of them would have to be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hibernated: Option<u32>,
    /// The sessions, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<SessionEntry>>,
    /// The next page, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page: Option<u32>,
    /// Where the list goes on, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<SessionId>,
}

/// What a session does now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// A turn runs.
    Working,
    /// A turn waits for an approval.
    Waiting,
    /// Live, without a turn.
    #[default]
    Idle,
    /// Without a worker; attaching wakes it.
    Hibernated,
    /// Its worker died; attaching starts it again.
    Crashed,
    /// Its processes were ended on purpose; attaching starts it again.
    Closed,
    /// It keeps dying and was left down.
    Failed,
    /// A state of a newer server.
    #[serde(other)]
    Unknown,
}

/// One session in a list. A worker pushes it over its link; what only scvd knows is added there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionEntry {
    /// The session.
    pub id: String,
    /// Its name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its workspace.
    pub cwd: PathBuf,
    /// The chat that it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat: Option<Chat>,
    /// What it does.
    pub state: SessionState,
    /// Why it crashed or failed, in words; where this supervisor saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Attached clients.
    pub clients: u32,
    /// Its worker's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_pid: Option<i32>,
    /// The release of its worker, where that is not the supervisor's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_version: Option<String>,
    /// What it and all that it started have in memory, in bytes; in lists, where a cgroup tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The processor time that it and all that it started have used since its worker started, in
    /// milliseconds; in lists, where a cgroup tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// The turn that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// Prompts that wait.
    pub queue: u32,
    /// Approvals that wait.
    pub approvals: u32,
    /// Background jobs.
    pub jobs: u32,
    /// What runs now, at most 120 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// Since when it has been in this state.
    pub since_unix_ms: u64,
    /// When it was created.
    pub created_unix_ms: u64,
    /// When something last happened in it.
    pub last_active_unix_ms: u64,
    /// The last prompt, at most 120 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_prompt: Option<String>,
    /// Tokens so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<super::server::Usage>,
}

/// One worker process (ours).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerEntry {
    /// The worker.
    pub id: String,
    /// Its process.
    pub pid: i32,
    /// Its release.
    pub version: String,
    /// `spare`, or the session it runs.
    pub role: String,
    /// Deaths in the last 60 s of that session.
    #[serde(skip_serializing_if = "is_zero")]
    pub recent_deaths: u32,
    /// What it and all that it started have in memory, in bytes; where a cgroup tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The processor time that it and all that it started have used, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}
