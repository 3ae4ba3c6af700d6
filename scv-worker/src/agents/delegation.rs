//! The life of a call to an agent, the same for every agent and transport.
//!
//! Record on disk → private home → transport opened → asked → progress and one result → every
//! process ended → record gone. However a call ends, it takes all of these steps.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shared::process::{End, GRACE, RunEnd};
use shared::registry::Delegations;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::conversation::{ConversationError, Turn};
use super::home::AgentHome;
use super::invocation::{Choice, Invocation};
use super::output::{Heard, Phase};
use super::record::Ticket;
use super::result::{self, Cause, Context, Outcome, Status};
use super::transports::{self, Ear, Place};
use super::{Agents, Offered};
use crate::call::{CallContext, ToolError};

/// When a program that says nothing more is ended, long before the call's own limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watchdogs {
    /// After the terminal event, until the process exits. Programs send statistics meanwhile, some
    /// for 7 seconds.
    pub linger: Duration,
    /// After an answer, while nothing that the agent started runs. A model may think for minutes,
    /// and programs give up on a silent one after 5.
    pub silence: Duration,
}

impl Default for Watchdogs {
    fn default() -> Self {
        Self { linger: Duration::from_secs(10), silence: Duration::from_mins(15) }
    }
}

/// One call, checked.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// What to do.
    pub prompt: String,
    /// Where, as the call says it; `None`: where the conversation works, else the workspace.
    pub cwd: Option<String>,
    /// The conversation to go on with.
    pub session: Option<String>,
    /// A model.
    pub model: Option<String>,
    /// An effort.
    pub effort: Option<String>,
    /// The limit of the whole call.
    pub limit: Duration,
}

impl Agents {
    /// Runs one call of `agent` to its end, with the command line that was shown.
    pub(crate) async fn delegate(
        &self,
        agent: &Offered,
        task: &Task,
        invocation: &Invocation,
        context: &CallContext,
    ) -> Result<Outcome, ToolError> {
        let deadline = Instant::now() + task.limit;
        let mut conversation = self.converse(agent, task)?;
        let cwd = match &conversation {
            Some(turn) => turn.cwd().to_owned(),
            None => self.directory(task.cwd.as_deref())?,
        };
        let attempt = self
            .attempt(Start { agent, task, invocation, cwd: &cwd, deadline, context }, conversation.as_mut())
            .await?;
        if !attempt.lost {
            return Ok(attempt.outcome);
        }
        // One retry, as a new conversation: what the program has forgotten it will not find later.
        let Some(turn) = conversation.take() else { return Ok(attempt.outcome) };
        let forgotten = turn.handle().to_owned();
        turn.lost();
        let mut turn = self.conversations.begin(agent.adapter.name, &cwd).map_err(|error| refused(&error))?;
        let invocation = &self.invocation(agent, task, None);
        let start = Start { agent, task, invocation, cwd: &cwd, deadline, context };
        let mut outcome = self.attempt(start, Some(&mut turn)).await?.outcome;
        outcome.remark(&format!(
            "{} no longer knew conversation {forgotten}, so its history is gone; this ran as a new conversation.",
            agent.adapter.product
        ));
        Ok(outcome)
    }

    /// The command line of `task`.
    pub(crate) fn invocation(&self, agent: &Offered, task: &Task, resumes: Option<&str>) -> Invocation {
        let (model, effort) = (task.model.as_deref(), task.effort.as_deref());
        let choice = Choice { prompt: &task.prompt, model, effort, resumes };
        Invocation::new(agent, &AgentHome::new(&self.session.layout, agent.adapter.name), choice)
    }

    /// Starts the turn of a conversation, for an agent that has any.
    fn converse(&self, agent: &Offered, task: &Task) -> Result<Option<Turn>, ToolError> {
        if !agent.takes_session() {
            return Ok(None);
        }
        let Some(handle) = &task.session else {
            let cwd = self.directory(task.cwd.as_deref())?;
            return self.conversations.begin(agent.adapter.name, &cwd).map(Some).map_err(|error| refused(&error));
        };
        let turn = self.conversations.resume(handle).map_err(|error| refused(&error))?;
        let cwd = match &task.cwd {
            Some(cwd) => self.directory(Some(cwd))?,
            None => turn.cwd().to_owned(),
        };
        if cwd != turn.cwd() {
            return Err(ToolError::Invalid(format!(
                "conversation {handle} works in {}; omit cwd to continue it there, or omit session to start a new one \
                 in {}",
                turn.cwd().display(),
                cwd.display()
            )));
        }
        if !cwd.is_dir() {
            return Err(ToolError::Invalid(format!(
                "the directory of conversation {handle} is gone: {}",
                cwd.display()
            )));
        }
        Ok(Some(turn))
    }

    /// The directory that `cwd` names: inside the workspace, symbolic links followed.
    fn directory(&self, cwd: Option<&str>) -> Result<PathBuf, ToolError> {
        let workspace = &self.session.workspace;
        match cwd {
            Some(cwd) => Ok(workspace.resolve_dir(cwd)?),
            None => Ok(workspace.root().to_owned()),
        }
    }

    /// One start of the program.
    async fn attempt(&self, start: Start<'_>, mut conversation: Option<&mut Turn>) -> Result<Attempt, ToolError> {
        let Start { agent, invocation, .. } = start;
        let resumed = conversation.as_ref().is_some_and(|turn| turn.resumes().is_some());
        let place = self.place(start, conversation.as_deref())?;
        let message = LastMessage(invocation.last.as_deref());
        let heard = Heard::new(agent.adapter.format.map(|new| new()));
        let ear = Ear::new(heard, &start.context.progress, conversation.as_deref_mut());
        let ran = self.run(start, place, ear).await;
        let (cause, mut heard, out_of_memory) =
            ran.map_err(|error| ToolError::Unavailable(self.no_start(agent, &error)))?;
        message.read_into(&mut heard);
        if let (Some(turn), Some(id)) = (conversation.as_deref_mut(), &invocation.chosen)
            && heard.has_events()
        {
            // The program took the id that we chose.
            turn.confirm(id);
        }
        if cause == Cause::Cancelled {
            return Err(ToolError::Cancelled(format!("{} was stopped: the turn was cancelled", agent.adapter.product)));
        }
        let mut outcome = self.outcome(agent, &heard, &cause, conversation);
        if let Some(told) = out_of_memory.filter(|_| outcome.status == Status::Failed) {
            outcome.remark(&format!("It may have failed for want of memory: {told}."));
        }
        let lost = resumed && outcome.status == Status::Failed && !heard.has_events() && {
            let words = outcome.error.as_deref().unwrap_or_default().to_lowercase();
            agent.adapter.lost.iter().any(|lost| words.contains(lost))
        };
        Ok(Attempt { outcome, lost })
    }

    /// Puts the run on record and makes the agent's private home.
    fn place(&self, start: Start<'_>, turn: Option<&Turn>) -> Result<Place, ToolError> {
        let Start { agent, cwd, .. } = start;
        let conversation = turn.map(|turn| (turn.handle().to_owned(), turn.number()));
        let failed = |what: &str, error: &io::Error| ToolError::Failed(format!("cannot {what}: {error}"));
        let registry = Delegations::new(&self.session.layout);
        let ticket = Ticket::new(&self.runs, registry, agent.adapter.name, cwd, conversation)
            .map_err(|error| failed("record the delegation", &error))?;
        let home = AgentHome::new(&self.session.layout, agent.adapter.name);
        home.create().map_err(|error| failed("make the agent's private home", &error))?;
        let env = home.env(agent.adapter, agent.is_full(), self.environment());
        Ok(Place { ticket, cwd: cwd.to_owned(), env })
    }

    /// Asks and listens until something ends the turn, then ends what runs. Also tells if memory ran
    /// out meanwhile.
    async fn run(
        &self,
        start: Start<'_>,
        place: Place,
        mut ear: Ear<'_>,
    ) -> io::Result<(Cause, Heard, Option<String>)> {
        let Start { task, invocation, deadline, context, .. } = start;
        let mut transport = transports::choose(&start.agent.profile).ok_or(io::ErrorKind::Unsupported)?;
        let kill = place.ticket.killed();
        let phase = ear.phase();
        transport.open(place).await?;
        let cause = tokio::select! {
            // Causes in their order: cancel, time-out, exit.
            biased;
            () = context.cancel.cancelled() => Cause::Cancelled,
            () = kill => Cause::Killed,
            () = sleep_until(deadline) => Cause::Deadline(task.limit.as_secs()),
            exit = transport.turn(invocation, &mut ear) => Cause::Exited(exit?),
            cause = watchdog(phase, self.watchdogs) => cause,
        };
        let how = match cause {
            Cause::Exited(_) => End::Finished,
            Cause::Deadline(_) => End::Kill,
            Cause::Cancelled | Cause::Killed | Cause::Lingered | Cause::Silent(_) => {
                let _ = timeout(GRACE, transport.cancel(&mut ear)).await;
                End::Terminate { grace: GRACE }
            }
        };
        let ended = transport.close(how, &mut ear).await;
        let out_of_memory = ended.as_ref().and_then(RunEnd::out_of_memory);
        if let Some(ended) = ended.filter(|ended| !ended.left.is_empty()) {
            tracing::info!(left = ?ended.left, "ended what an agent left behind");
        }
        Ok((cause, ear.finish(), out_of_memory))
    }

    fn outcome(&self, agent: &Offered, heard: &Heard, cause: &Cause, conversation: Option<&mut Turn>) -> Outcome {
        let offered: Vec<_> = self.offered.iter().map(|agent| agent.adapter).collect();
        let context = Context { adapter: agent.adapter, offered: &offered, reply_bytes: self.settings.reply_bytes };
        let mut outcome = Outcome::judge(context, heard, cause);
        outcome.usage = heard.said.usage;
        if let Some(turn) = conversation {
            if agent.adapter.cumulative_usage {
                outcome.usage = heard.said.usage.map(|total| turn.spent(total));
            }
            if turn.is_confirmed() {
                outcome.session = Some(turn.handle().to_owned());
                outcome.turn = Some(turn.number());
                if outcome.status == Status::Timeout {
                    outcome.remark(&format!("Pass session {} to ask it to continue where it stopped.", turn.handle()));
                }
            }
        }
        outcome
    }

    /// Why `agent` did not start, with the agents that may be there.
    fn no_start(&self, agent: &Offered, error: &io::Error) -> String {
        let what = format!("cannot start {} for agent {}: {error}", agent.program.display(), agent.adapter.name);
        self.with_fallback(agent, &what)
    }

    /// `what`, and the other agents of the session.
    pub(crate) fn with_fallback(&self, agent: &Offered, what: &str) -> String {
        let offered: Vec<_> = self.offered.iter().map(|agent| agent.adapter).collect();
        result::fallback(agent.adapter, &offered).map_or(what.to_owned(), |fallback| format!("{what}. {fallback}"))
    }
}

/// One start of a program.
#[derive(Clone, Copy)]
struct Start<'a> {
    agent: &'a Offered,
    task: &'a Task,
    invocation: &'a Invocation,
    cwd: &'a Path,
    deadline: Instant,
    context: &'a CallContext,
}

struct Attempt {
    outcome: Outcome,
    lost: bool,
}

/// Returns when a program has been silent for too long for how far it is.
async fn watchdog(mut phase: watch::Receiver<Phase>, dogs: Watchdogs) -> Cause {
    loop {
        let now = *phase.borrow_and_update();
        let patience = match now {
            Phase::Working => Duration::MAX,
            Phase::Answered => dogs.silence,
            Phase::Ended => {
                sleep(dogs.linger).await;
                return Cause::Lingered;
            }
        };
        if timeout(patience, phase.changed()).await.is_err() {
            return Cause::Silent(patience.as_secs());
        }
    }
}

/// Where a program leaves its final message; removed when it is not needed any more, whatever
/// happened.
struct LastMessage<'a>(Option<&'a Path>);

impl LastMessage<'_> {
    /// It is the reply if the stream carried none.
    fn read_into(&self, heard: &mut Heard) {
        const MAX_BYTES: u64 = 4 << 20;
        let wanted = self.0.filter(|_| heard.said.reply.is_none());
        let content = wanted.and_then(|path| shared::fs::read_bounded(path, MAX_BYTES).ok());
        let text = content.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        if !text.trim().is_empty() {
            heard.said.answer(text.trim());
        }
    }
}

impl Drop for LastMessage<'_> {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.map(shared::fs::remove) {
            tracing::warn!(%error, "cannot remove an agent's last message");
        }
    }
}

fn refused(error: &ConversationError) -> ToolError {
    match error {
        ConversationError::Unknown { .. } => ToolError::Invalid(error.to_string()),
        ConversationError::Busy(_) => ToolError::Unavailable(error.to_string()),
        ConversationError::AllBusy(_) => ToolError::Limit(error.to_string()),
    }
}
