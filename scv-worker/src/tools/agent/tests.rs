//! The tool with a shell script, run through `bash`, as the agent's program.

mod calls;
mod schema;
mod turns;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use shared::config::{Agent as Profile, Config, Permissions};
use shared::layout::Layout;
use shared::process::{Family, Identity, Marks};
use shared::protocol::SessionId;
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use super::super::{CallContext, Output, Progress, Tool, ToolError};
use super::AgentTool;
use crate::agents::adapters::{Adapter, NONE};
use crate::agents::conversation::{Conversations, Limits, Markers, Snapshot};
use crate::agents::delegation::Watchdogs;
use crate::agents::{Agents, Offered, Session, Settings};
use crate::runs::{Runs, Seat};
use crate::workspace::Workspace;

/// Nothing in these tests takes longer.
const LONG: Duration = Duration::from_secs(20);

/// A home, a workspace and a session in it.
struct Bench {
    dir: tempfile::TempDir,
    layout: Layout,
    session: SessionId,
    runs: Runs,
    tool: AgentTool,
}

/// What differs between the tests.
struct Setup {
    config: Config,
    depth: u32,
    env: Vec<(&'static str, String)>,
    watchdogs: Watchdogs,
    others: Vec<Offered>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            config: Config::default(),
            depth: 0,
            env: vec![],
            watchdogs: Watchdogs { linger: Duration::from_millis(300), silence: Duration::from_secs(1) },
            others: vec![],
        }
    }
}

impl Setup {
    /// The agent's program is `script`.
    fn agents(mut self, dir: &Path, script: &str) -> (Rc<Agents>, Runs, Layout, SessionId) {
        let layout = Layout::open(&dir.join("home")).unwrap();
        layout.create().unwrap();
        let workspace = dir.join("work");
        std::fs::create_dir_all(&workspace).unwrap();
        let path = dir.join("agent.sh");
        std::fs::write(&path, script).unwrap();
        let codex = self.config.agents.get_mut("codex").unwrap();
        if codex.command == "codex" {
            codex.command = "/bin/bash".into();
            codex.args = vec![path.to_str().unwrap().into()];
        }
        let session = SessionId::new();
        let mut env = vec![("PATH", "/usr/bin:/bin".to_owned()), ("HOME", dir.to_str().unwrap().to_owned())];
        env.append(&mut self.env);
        let whose = Session { layout: layout.clone(), workspace: Rc::new(Workspace::open(&workspace).unwrap()) };
        let markers = Markers { dir: layout.conversations(), session, owner: Identity::current().unwrap() };
        let limits = Limits {
            conversations: self.config.agent.max_conversations,
            idle: Duration::from_secs(self.config.agent.conversation_idle_seconds),
        };
        let conversations = Conversations::new(limits, markers, Snapshot::default());
        let seat = Seat { instance: layout.instance(), session, depth: self.depth, parent: None };
        let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let runs = Runs::new(Family::new().unwrap(), seat, env);
        let mut agents = Agents::new(whose, Settings::from(&self.config), conversations, runs.clone());
        agents.set_watchdogs(self.watchdogs);
        self.others.into_iter().for_each(|agent| agents.offer(agent));
        (Rc::new(agents), runs, layout, session)
    }

    fn bench(self, script: &str) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let (agents, runs, layout, session) = self.agents(dir.path(), script);
        let tool = AgentTool::new(agents).expect("an agent is offered");
        Bench { dir, layout, session, runs, tool }
    }
}

/// What a call gave, and what it showed meanwhile.
struct Ran {
    output: Output,
    progress: Vec<String>,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.output.text).unwrap()
    }
}

impl Bench {
    fn workspace(&self) -> PathBuf {
        self.dir.path().join("work").canonicalize().unwrap()
    }

    /// A file that the script wrote to the workspace.
    fn wrote(&self, name: &str) -> String {
        std::fs::read_to_string(self.workspace().join(name)).unwrap()
    }

    fn refusal(&self, arguments: Value) -> String {
        self.tool.prepare(arguments).err().expect("the call is refused").to_string()
    }

    async fn run(&self, arguments: Value) -> Result<Ran, ToolError> {
        self.run_until(arguments, CancellationToken::new()).await
    }

    async fn run_until(&self, arguments: Value, cancel: CancellationToken) -> Result<Ran, ToolError> {
        let (lines, mut shown) = mpsc::channel(64);
        let prepared = self.tool.prepare(arguments)?;
        let context = CallContext { cancel, progress: Progress::new(lines) };
        let output = tokio::time::timeout(LONG, (prepared.run)(context)).await.expect("the call ends")?;
        let mut progress = vec![];
        while let Ok(line) = shown.try_recv() {
            progress.push(line);
        }
        Ok(Ran { output, progress })
    }

    /// After a call: no record, no process of this session, nothing in the agent's `tmp`.
    fn assert_clean(&self) {
        assert_eq!(std::fs::read_dir(self.layout.delegations()).unwrap().count(), 0, "a record is left");
        assert_eq!(self.processes(), Vec::<i32>::new(), "a process is left");
        let tmp = self.layout.agent_home("codex").join("tmp");
        assert_eq!(std::fs::read_dir(tmp).map_or(0, Iterator::count), 0, "a file is left");
    }

    /// Live processes of this home. This one carries a tag itself while another test starts
    /// something.
    fn processes(&self) -> Vec<i32> {
        let (me, instance) = (std::process::id().cast_signed(), self.layout.instance());
        let entries = std::fs::read_dir("/proc").unwrap();
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|&pid| pid != me && Marks::of(pid).names_instance(&instance))
            .filter(|&pid| Identity::of(pid).is_ok_and(|id| id.is_alive()))
            .collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_clean();
        }
    }
}

/// Runs a test as a worker runs: one thread, a child subreaper.
fn as_worker(test: impl AsyncFnOnce()) {
    shared::process::become_subreaper().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async { test().await });
}

/// Events of a turn that answers `reply`.
fn answer(reply: &str) -> String {
    format!(
        r#"echo '{{"type":"thread.started","thread_id":"thread-1"}}'
echo '{{"type":"item.completed","item":{{"id":"1","type":"agent_message","text":"{reply}"}}}}'
echo '{{"type":"turn.completed","usage":{{"input_tokens":12,"output_tokens":7}}}}'
"#
    )
}

/// Another agent, which takes a model.
fn other() -> Offered {
    static OTHER: Adapter = Adapter { name: "other", product: "Other", ..NONE };
    let profile = Profile { model_args: vec!["-m".into(), "{model}".into()], ..Profile::default() };
    Offered { adapter: &OTHER, profile, program: "/bin/false".into() }
}

fn full(config: &mut Config) {
    config.agents.get_mut("codex").unwrap().permissions = Permissions::Full;
}

fn call(prompt: &str) -> Value {
    json!({"agent": "codex", "prompt": prompt})
}
