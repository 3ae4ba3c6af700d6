//! `agent`: hands work to another agent.
//!
//! Chooses the agent, checks the call against what that agent takes, and shows what will run. How
//! it runs is [`crate::agents`]' business.

mod arguments;
mod describe;

use std::rc::Rc;

use futures_util::FutureExt as _;
use serde_json::Value;
use shared::protocol::server::Risk;

use super::{Output, Prepared, Tool, ToolError};
use crate::agents::delegation::Task;
use crate::agents::invocation::Invocation;
use crate::agents::result::Status;
use crate::agents::{Agents, Offered, executable};
use crate::provider::ToolSpec;
use arguments::Arguments;

/// The tool's name.
const NAME: &str = "agent";

/// How much of the prompt an approval shows.
const SHOWN_PROMPT_BYTES: usize = 2 << 10;

/// See the module.
pub(crate) struct AgentTool {
    agents: Rc<Agents>,
}

impl AgentTool {
    /// A session that offers no agent has no such tool.
    pub(crate) fn new(agents: Rc<Agents>) -> Option<Self> {
        (!agents.offered().is_empty()).then_some(Self { agents })
    }

    /// The agent that runs a call: that of its conversation, the one that it names, the default.
    fn choose(&self, call: &Arguments) -> Result<&Offered, ToolError> {
        let offered = || self.agents.offered().iter().map(|agent| agent.adapter.name).collect::<Vec<_>>().join(", ");
        let find = |name: &str| {
            self.agents.find(name).ok_or_else(|| {
                let name = shared::text::one_line(name, 64);
                ToolError::Invalid(format!(
                    "agent {name:?} is not offered in this session; choose one of: {}",
                    offered()
                ))
            })
        };
        let named = call.agent.as_deref().map(find).transpose()?;
        if let Some(handle) = &call.session {
            return self.owner(handle, named);
        }
        named.or_else(|| self.agents.default_agent()).ok_or_else(|| {
            ToolError::Invalid(format!(
                "name the agent: the user prefers none of the agents this session offers ([agent] prefer); choose one \
                 of: {}",
                offered()
            ))
        })
    }

    /// Whose conversation `handle` is.
    fn owner(&self, handle: &str, named: Option<&Offered>) -> Result<&Offered, ToolError> {
        if let Some(named) = named.filter(|named| !named.takes_session()) {
            return Err(self.does_not_take(named, "session", Offered::takes_session));
        }
        let conversation =
            self.agents.conversations().find(handle).map_err(|error| ToolError::Invalid(error.to_string()))?;
        if let Some(named) = named.filter(|named| named.adapter.name != conversation.agent) {
            return Err(ToolError::Invalid(format!(
                "conversation {handle} belongs to {}, not {}; omit agent to continue it, or omit session to start a \
                 new conversation with {1}",
                conversation.agent, named.adapter.name
            )));
        }
        self.agents.find(&conversation.agent).ok_or_else(|| {
            ToolError::Unavailable(format!(
                "conversation {handle} belongs to {}, which this session does not offer any more; omit session to \
                 start a new one with another agent",
                conversation.agent
            ))
        })
    }

    fn does_not_take(&self, agent: &Offered, option: &str, takes: impl Fn(&Offered) -> bool) -> ToolError {
        let others: Vec<_> = self.agents.offered().iter().filter(|agent| takes(agent)).collect();
        let name = agent.adapter.name;
        ToolError::Invalid(match &others[..] {
            [] => format!("{name} does not take {option}; no agent of this session does. Omit {option}"),
            others => {
                let others: Vec<_> = others.iter().map(|agent| agent.adapter.name).collect();
                format!(
                    "{name} does not take {option}; these agents do: {}. Omit {option}, or call one of them",
                    others.join(", ")
                )
            }
        })
    }

    fn check_options(&self, agent: &Offered, call: &Arguments) -> Result<(), ToolError> {
        if call.model.is_some() && !agent.takes_model() {
            return Err(self.does_not_take(agent, "model", Offered::takes_model));
        }
        if call.effort.is_some() && !agent.takes_effort() {
            return Err(self.does_not_take(agent, "effort", Offered::takes_effort));
        }
        if call.session.is_some() && !agent.takes_session() {
            return Err(self.does_not_take(agent, "session", Offered::takes_session));
        }
        Ok(())
    }

    /// `agent` with its program as it is installed now: a session outlives upgrades.
    fn installed(&self, agent: &Offered) -> Result<Offered, ToolError> {
        let command = &agent.profile.command;
        match executable::resolve(command, agent.adapter.bin_dirs, self.agents.environment()) {
            Some(program) => Ok(Offered { program, ..agent.clone() }),
            None => Err(ToolError::Unavailable(self.agents.with_fallback(
                agent,
                &format!("the program of agent {}, {command}, is not installed any more", agent.adapter.name),
            ))),
        }
    }

    async fn run(
        &self,
        agent: Offered,
        task: Task,
        invocation: Invocation,
        context: super::CallContext,
    ) -> Result<Output, ToolError> {
        let outcome = self.agents.delegate(&agent, &task, &invocation, &context).await?;
        Ok(Output {
            text: outcome.to_json(),
            success: outcome.status == Status::Completed,
            truncated: outcome.truncated,
        })
    }
}

impl Tool for AgentTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: NAME.to_owned(),
            description: describe::DESCRIPTION.to_owned(),
            parameters: describe::parameters(&self.agents),
        }
    }

    fn prepare(&self, arguments: Value) -> Result<Prepared<'_>, ToolError> {
        let call = Arguments::parse(arguments)?;
        let agent = self.choose(&call)?;
        self.check_options(agent, &call)?;
        call.check()?;
        let limit = call.limit(self.agents.settings())?;
        let agent = self.installed(agent)?;
        let resumes = match &call.session {
            Some(handle) => self.agents.conversations().find(handle).ok().map(|conversation| conversation.thread),
            None => None,
        };
        let Arguments { prompt, cwd, session, model, effort, .. } = call;
        let task = Task { prompt, cwd, session, model, effort, limit };
        let invocation = self.agents.invocation(&agent, &task, resumes.as_deref());
        Ok(Prepared {
            risk: Risk::Delegate,
            summary: summary(&agent, &task, &invocation),
            limit: Some(limit),
            run: Box::new(move |context| self.run(agent, task, invocation, context).boxed_local()),
        })
    }
}

/// What a person decides on.
fn summary(agent: &Offered, task: &Task, invocation: &Invocation) -> String {
    let (args, _prompt) = invocation.args.split_at(invocation.args.len().saturating_sub(1));
    let args = args.iter().cloned().chain(["<prompt>".to_owned()]).collect::<Vec<_>>();
    let directory = match (&task.cwd, &task.session) {
        (Some(cwd), _) => format!("in {cwd:?}"),
        (None, Some(handle)) => format!("where conversation {handle} works"),
        (None, None) => "in the workspace".to_owned(),
    };
    let full = if agent.is_full() { " FULL PERMISSIONS: it works without a sandbox and without asking." } else { "" };
    format!(
        "agent {}: Launch {} with args {} {directory}, for at most {} s.{full} It may read, write, run commands, \
         use what the environment gives it and send what it reads to its own model provider. Prompt: {}",
        agent.adapter.name,
        invocation.program.display(),
        serde_json::to_string(&args).unwrap_or_default(),
        task.limit.as_secs(),
        shared::text::cut(&task.prompt, SHOWN_PROMPT_BYTES),
    )
}

#[cfg(test)]
mod tests;
