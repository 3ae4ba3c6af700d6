//! The demo's client: sends prompts, shows what happens, approves what is asked.

use std::time::Duration;

use shared::client::Client;
use shared::protocol::ErrorCode;
use shared::protocol::SessionId;
use shared::protocol::client::{ApprovalResolve, ClientMessage, OnDisconnect, SessionAttach, SessionStart, TurnStart};
use shared::protocol::server::{Reply, ServerEvent, TurnBody};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::house::House;
use super::ledger::Ledger;
use super::say;
use crate::error::CliError;
use crate::output;

/// How often the demo looks at its processes while a turn runs, to list even short ones.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// No scene takes longer; a demo that hangs has failed.
const SCENE_WITHIN: Duration = Duration::from_mins(1);

/// What was seen of one turn.
#[derive(Debug, Default)]
pub(super) struct Scene {
    /// The last answer.
    pub answer: String,
    /// Tools and what they gave.
    pub outputs: Vec<(String, String)>,
    /// Progress lines.
    pub progress: Vec<String>,
    /// Approvals that were asked and answered.
    pub approvals: usize,
}

/// One session of the demo.
pub(super) struct Stage {
    client: Client,
    session_id: SessionId,
    last_seq: u64,
}

impl Stage {
    /// Starts a session that stays when its client goes.
    pub(super) async fn open(house: &House) -> Result<Self, CliError> {
        let session_id = SessionId::new();
        let mut stage = Self { client: house.connect().await?, session_id, last_seq: 0 };
        let request_id = stage.client.request_id();
        let start = SessionStart {
            request_id,
            cwd: house.workspace(),
            session_id: Some(session_id),
            on_disconnect: Some(OnDisconnect::Keep),
            title: Some("demo".to_owned()),
            client: Some(house.client_context()),
            ..SessionStart::default()
        };
        stage.client.send(&ClientMessage::SessionStart(Box::new(start))).await?;
        loop {
            match stage.next().await? {
                ServerEvent::Reply(Reply::SessionStarted(_)) => return Ok(stage),
                ServerEvent::Reply(Reply::Error(error)) => return Err(CliError::failed(error.message)),
                _ => {}
            }
        }
    }

    /// The session.
    pub(super) fn session_id(&self) -> SessionId {
        self.session_id
    }

    /// Sends a prompt and watches its turn to the end.
    pub(super) async fn turn(&mut self, prompt: &str, ledger: &mut Ledger) -> Result<Scene, CliError> {
        let mut scene = Scene::default();
        self.prompt(prompt).await?;
        loop {
            match self.watch(&mut scene, ledger).await? {
                Some(TurnBody::Completed { .. }) => return Ok(scene),
                Some(other) if other.is_terminal() => {
                    return Err(CliError::failed(format!("the turn did not complete: {other:?}")));
                }
                Some(_) => {}
                None => return Err(CliError::failed("the session's worker is gone")),
            }
        }
    }

    /// Sends a prompt and watches until a tool runs.
    pub(super) async fn turn_until_tool(&mut self, prompt: &str, ledger: &mut Ledger) -> Result<(), CliError> {
        let mut scene = Scene::default();
        self.prompt(prompt).await?;
        loop {
            match self.watch(&mut scene, ledger).await? {
                Some(TurnBody::ToolProgress { .. }) => return Ok(()),
                Some(body) if !body.is_terminal() => {}
                other => return Err(CliError::failed(format!("the long command did not start: {other:?}"))),
            }
        }
    }

    /// Waits until the worker's end has closed the connection.
    pub(super) async fn expect_lost(&mut self, ledger: &mut Ledger) -> Result<(), CliError> {
        let mut scene = Scene::default();
        while self.watch(&mut scene, ledger).await?.is_some() {}
        say("  the connection is gone, as it has to be");
        Ok(())
    }

    /// Attaches again after what was seen; how often the turn is told as interrupted.
    pub(super) async fn attach(&mut self, house: &House, ledger: &mut Ledger) -> Result<usize, CliError> {
        self.client = house.connect().await?;
        let request_id = self.client.request_id();
        let attach = SessionAttach {
            request_id,
            session_id: self.session_id,
            after_seq: self.last_seq,
            on_disconnect: None,
            auto_approve: None,
            client: Some(house.client_context()),
            observe: false,
        };
        self.client.send(&ClientMessage::SessionAttach(attach)).await?;
        ledger.look();
        let mut interrupted = 0;
        loop {
            match self.next().await? {
                ServerEvent::Turn(event) => {
                    self.last_seq = event.seq;
                    if let TurnBody::Failed { code: ErrorCode::SessionCrashed, message, .. } = event.body {
                        say(&format!("  {message}"));
                        interrupted += 1;
                    }
                }
                // It comes after what was replayed.
                ServerEvent::Reply(Reply::QueueSnapshot { .. }) => return Ok(interrupted),
                ServerEvent::Reply(Reply::Error(error)) => return Err(CliError::failed(error.message)),
                _ => {}
            }
        }
    }

    async fn prompt(&mut self, prompt: &str) -> Result<(), CliError> {
        say(&format!("  you: {prompt}"));
        let start = TurnStart {
            request_id: self.client.request_id(),
            session_id: self.session_id,
            prompt: prompt.to_owned(),
            attachments: Vec::new(),
            prompt_id: None,
        };
        Ok(self.client.send(&ClientMessage::TurnStart(start)).await?)
    }

    /// Shows the next event of a turn; `None` when the connection is gone.
    async fn watch(&mut self, scene: &mut Scene, ledger: &mut Ledger) -> Result<Option<TurnBody>, CliError> {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let received = loop {
            tokio::select! {
                _ = looks.tick() => ledger.look(),
                received = timeout(SCENE_WITHIN, self.client.next_event()) => {
                    break received.map_err(|_| CliError::failed("the demo waited for a minute and nothing happened"))?;
                }
            }
        };
        let Some(received) = received? else { return Ok(None) };
        let event = match received.event {
            ServerEvent::Turn(event) => event,
            ServerEvent::Reply(Reply::Error(error)) => return Err(CliError::failed(error.message)),
            _ => return Box::pin(self.watch(scene, ledger)).await,
        };
        self.last_seq = event.seq;
        match &event.body {
            TurnBody::AssistantCompleted { content } if !content.is_empty() => {
                say(&format!("  scv: {}", output::printable(content)));
                scene.answer.clone_from(content);
            }
            TurnBody::ToolStarted { name, .. } => say(&format!("  > {name}")),
            TurnBody::ToolProgress { text, .. } => {
                for line in text.lines() {
                    say(&format!("    {}", output::printable(line)));
                    scene.progress.push(line.to_owned());
                }
            }
            TurnBody::ToolCompleted(done) => {
                say(&format!("  < {}: {}", done.name, if done.success { "done" } else { "failed" }));
                scene.outputs.push((done.name.clone(), done.output.clone()));
            }
            TurnBody::ApprovalRequested(request) => {
                let first = shared::text::one_line(&request.summary, 160);
                say(&format!("  ? {} ({:?}): {}", request.name, request.risk, output::printable(&first)));
                say("    yes (the demo answers)");
                scene.approvals += 1;
                let resolve = ApprovalResolve {
                    request_id: self.client.request_id(),
                    session_id: self.session_id,
                    approval_id: request.approval_id.clone(),
                    approved: true,
                    reason: None,
                };
                self.client.send(&ClientMessage::ApprovalResolve(resolve)).await?;
            }
            _ => {}
        }
        Ok(Some(event.body))
    }

    async fn next(&mut self) -> Result<ServerEvent, CliError> {
        let gone = || CliError::failed("the supervisor closed the connection");
        Ok(timeout(SCENE_WITHIN, self.client.next_event()).await.map_err(|_| gone())??.ok_or_else(gone)?.event)
    }
}
