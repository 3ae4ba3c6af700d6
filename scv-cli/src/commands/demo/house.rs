//! A temporary home with its own supervisor and model, and how all of it ends.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use shared::client::Client;
use shared::layout::Layout;
use shared::process::Identity;
use shared::protocol::SessionId;
use shared::protocol::client::ClientContext;
use shared::protocol::control::{Command, SessionList};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command as Program};
use tokio::time::timeout;

use super::ledger::Ledger;
use super::{cannot, say};
use crate::binaries;
use crate::context::Context;
use crate::error::CliError;

/// The files that the story is about.
const NOTES: &str = "buy milk\ncall the plumber\nwrite to Ada\n";

/// A supervisor or a model on loopback is up in milliseconds.
const UP_WITHIN: Duration = Duration::from_secs(10);

/// Everything that the demo runs on.
pub(super) struct House {
    dir: TempDir,
    layout: Layout,
    model: Child,
    scvd: Child,
}

/// What the model says of itself.
#[derive(Debug, Deserialize)]
struct Model {
    url: String,
    agent: String,
}

impl House {
    /// Makes the home, starts the model, starts the supervisor.
    pub(super) async fn build(context: &Context) -> Result<Self, CliError> {
        let scvd = binaries::find("scvd", context)?;
        let worker = binaries::find("scv-worker", context)?;
        let dir = tempfile::Builder::new().prefix("scv-demo-").tempdir().map_err(cannot("make a temporary home"))?;
        let layout = Layout::open(&dir.path().join("home")).map_err(cannot("make a temporary home"))?;
        std::fs::create_dir(dir.path().join("work"))
            .and_then(|()| std::fs::write(dir.path().join("work/notes.txt"), NOTES))
            .map_err(cannot("write the demo's files"))?;

        let mut model = start(Program::new(&worker).arg("--demo-model").stdin(Stdio::piped()))?;
        let described = first_line(&mut model).await?;
        let described: Model = serde_json::from_str(&described)
            .map_err(|error| CliError::failed("cannot understand the demo's model").because(error))?;
        let config = config(&described, &worker);
        shared::fs::replace(&layout.config(), config.as_bytes(), shared::fs::Sync::Lazy)
            .map_err(cannot("write the demo's configuration"))?;

        let mut scvd = start(
            Program::new(&scvd)
                .arg("--scv-home")
                .arg(layout.home())
                .env_clear()
                .envs(environment(dir.path()))
                .stdin(Stdio::null())
                .stderr(Stdio::null()),
        )?;
        match first_line(&mut scvd).await?.as_str() {
            "ready" => Ok(Self { dir, layout, model, scvd }),
            line => Err(CliError::failed(format!("the demo's supervisor did not start: {line}"))),
        }
    }

    /// Where the session works.
    pub(super) fn workspace(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> Result<Client, CliError> {
        Ok(Client::connect(&self.layout, "scv-demo", &["approvals", "attach", "notices"]).await?)
    }

    /// What the session's children get instead of the caller's environment.
    pub(super) fn client_context(&self) -> ClientContext {
        ClientContext { env: environment(self.dir.path()), ..ClientContext::default() }
    }

    /// The process that runs the session.
    pub(super) async fn worker_of(&self, id: SessionId) -> Result<Identity, CliError> {
        let status = self.connect().await?.control(Command::Sessions(SessionList::default())).await?;
        let pid = status
            .sessions
            .and_then(|sessions| sessions.entries)
            .unwrap_or_default()
            .into_iter()
            .find(|entry| entry.id == id.to_string())
            .and_then(|entry| entry.worker_pid)
            .ok_or_else(|| CliError::failed("the supervisor does not know the session's worker"))?;
        Identity::of(pid).map_err(cannot("look at the session's worker"))
    }

    /// Stops the supervisor and the model; both have to end by themselves.
    pub(super) async fn close(mut self, ledger: &mut Ledger, within: Duration) -> Result<(), CliError> {
        ledger.look();
        let stopped = async {
            self.connect().await?.control(Command::Stop).await?;
            Ok::<(), CliError>(())
        };
        let stopped = stopped.await;
        let ended = timeout(within, self.scvd.wait()).await;
        drop(self.model.stdin.take());
        let model = timeout(within, self.model.wait()).await;
        stopped?;
        match (ended, model) {
            (Ok(Ok(scvd)), Ok(Ok(model))) if scvd.success() && model.success() => Ok(()),
            (ended, model) => {
                say(&format!("  supervisor: {ended:?}, model: {model:?}"));
                Err(CliError::failed("the demo's supervisor or model did not end by itself"))
            }
        }
    }
}

fn config(model: &Model, worker: &Path) -> String {
    let mut config = toml_edit::DocumentMut::new();
    config["provider"]["active"] = toml_edit::value("demo");
    config["providers"]["demo"]["model"] = toml_edit::value("scripted");
    config["providers"]["demo"]["base_url"] = toml_edit::value(&model.url);
    let agent = &mut config["agents"][&model.agent];
    agent["command"] = toml_edit::value(worker.display().to_string());
    agent["args"] = toml_edit::value(toml_edit::Array::from_iter(["--demo-agent"]));
    config.to_string()
}

/// Nothing of the caller's environment, so that the demo is the same everywhere and shows no key.
fn environment(dir: &Path) -> BTreeMap<String, String> {
    let path = "/usr/local/bin:/usr/bin:/bin".to_owned();
    let dir = dir.display().to_string();
    BTreeMap::from([("PATH".to_owned(), path), ("HOME".to_owned(), dir.clone()), ("TMPDIR".to_owned(), dir)])
}

fn start(program: &mut Program) -> Result<Child, CliError> {
    program
        .stdout(Stdio::piped())
        // Ctrl+C is for us: everything we started ends with us, in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(cannot("start a part of the demo"))
}

async fn first_line(child: &mut Child) -> Result<String, CliError> {
    let silent = || CliError::failed("a part of the demo ended before it was up");
    let mut lines = BufReader::new(child.stdout.take().ok_or_else(silent)?).lines();
    let line = timeout(UP_WITHIN, lines.next_line()).await.map_err(|_| silent())?.map_err(cannot("read"))?;
    line.ok_or_else(silent)
}
