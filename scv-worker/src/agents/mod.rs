//! Other agents that work can be handed to.
//!
//! An agent is a file of facts ([`adapters`]). How it is talked to is a transport, what it prints
//! is an output format, and the life of a call, from its record to the last process that it left,
//! is [`delegation`], once for all of them.

pub(crate) mod adapters;
pub(crate) mod conversation;
pub(crate) mod delegation;
pub(crate) mod executable;
pub(crate) mod home;
pub(crate) mod invocation;
pub(crate) mod output;
pub(crate) mod prompt;
mod reading;
pub(crate) mod record;
pub(crate) mod result;
pub(crate) mod transports;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use shared::config::{Agent as Profile, Config, Permissions};
use shared::installed::AgentProgram;
use shared::layout::Layout;

use crate::runs::Runs;
use crate::workspace::Workspace;
use adapters::Adapter;
use conversation::Conversations;

/// What the configuration says about agents.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `[agents.<name>]`
    pub profiles: BTreeMap<String, Profile>,
    /// `agent.prefer`
    pub prefer: Vec<String>,
    /// `agent.max_delegation_depth`
    pub max_depth: u32,
    /// `tools.agent_timeout_seconds`
    pub timeout: Duration,
    /// `tools.max_timeout_seconds`
    pub max_timeout: Duration,
    /// `tools.output_limit_bytes`
    pub reply_bytes: usize,
}

impl From<&Config> for Settings {
    fn from(config: &Config) -> Self {
        Self {
            profiles: config.agents.clone(),
            prefer: config.agent.prefer.clone(),
            max_depth: config.agent.max_delegation_depth,
            timeout: Duration::from_secs(config.tools.agent_timeout_seconds),
            max_timeout: Duration::from_secs(config.tools.max_timeout_seconds),
            reply_bytes: config.tools.output_limit_bytes,
        }
    }
}

/// An agent that a session offers.
#[derive(Clone, Debug)]
pub(crate) struct Offered {
    /// What is known about it.
    pub adapter: &'static Adapter,
    /// How it is started.
    pub profile: Profile,
    /// Its program, absolute.
    pub program: PathBuf,
}

impl Offered {
    /// Whether it works without asking anybody.
    pub(crate) fn is_full(&self) -> bool {
        self.profile.permissions == Permissions::Full
    }
    /// Whether a call may select a model.
    pub(crate) fn takes_model(&self) -> bool {
        !self.profile.model_args.is_empty()
    }
    /// Whether a call may select an effort.
    pub(crate) fn takes_effort(&self) -> bool {
        !self.profile.effort_args.is_empty()
    }
    /// Whether a conversation can go on.
    pub(crate) fn takes_session(&self) -> bool {
        self.adapter.resume.is_some()
    }
}

/// Whose delegations these are.
#[derive(Clone)]
pub(crate) struct Session {
    /// The instance.
    pub layout: Layout,
    /// Its workspace.
    pub workspace: Rc<Workspace>,
}

/// Every agent that a session in the environment `env` could be offered, found or not.
pub(crate) fn programs(settings: &Settings, env: &home::Env) -> Vec<AgentProgram> {
    let program = |adapter: &&Adapter| {
        let command = profile(adapter, settings)?.command.clone();
        let path = executable::resolve(&command, adapter.bin_dirs, env);
        Some(AgentProgram { agent: adapter.name.into(), product: adapter.product.into(), command, path })
    };
    adapters::ALL.iter().filter_map(program).collect()
}

/// What the configuration says about an agent, if there is a way to talk to it.
fn profile<'a>(adapter: &Adapter, settings: &'a Settings) -> Option<&'a Profile> {
    let profile = settings.profiles.get(adapter.name)?;
    transports::choose(profile).map(|_| profile)
}

/// The agents of one session.
pub(crate) struct Agents {
    session: Session,
    settings: Settings,
    offered: Vec<Offered>,
    conversations: Conversations,
    runs: Runs,
    watchdogs: delegation::Watchdogs,
}

impl Agents {
    /// Finds the agents that are installed now; none of a session that is delegated too deep.
    pub(crate) fn new(session: Session, settings: Settings, conversations: Conversations, runs: Runs) -> Self {
        let allowed = runs.depth() < settings.max_depth;
        let offered = adapters::ALL.iter().filter(|_| allowed).filter_map(|adapter| {
            let profile = profile(adapter, &settings)?.clone();
            let program = executable::resolve(&profile.command, adapter.bin_dirs, runs.environment())?;
            Some(Offered { adapter, profile, program })
        });
        let offered = offered.collect();
        Self { session, settings, offered, conversations, runs, watchdogs: delegation::Watchdogs::default() }
    }

    /// Sorted by name.
    pub(crate) fn offered(&self) -> &[Offered] {
        &self.offered
    }

    /// The agent that a call gets when it names none: the first preferred one on offer.
    pub(crate) fn default_agent(&self) -> Option<&Offered> {
        self.settings.prefer.iter().find_map(|name| self.find(name))
    }

    /// The agent called `name`, if it is on offer.
    pub(crate) fn find(&self, name: &str) -> Option<&Offered> {
        self.offered.iter().find(|agent| agent.adapter.name == name)
    }

    /// The conversations of the session.
    pub(crate) fn conversations(&self) -> &Conversations {
        &self.conversations
    }

    /// What agents inherit, before it is cleaned.
    pub(crate) fn environment(&self) -> &BTreeMap<String, String> {
        self.runs.environment()
    }

    /// What the configuration says.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Offers one more agent.
    #[cfg(test)]
    pub(crate) fn offer(&mut self, agent: Offered) {
        self.offered.push(agent);
    }

    /// How long a program may say nothing.
    #[cfg(test)]
    pub(crate) fn set_watchdogs(&mut self, watchdogs: delegation::Watchdogs) {
        self.watchdogs = watchdogs;
    }
}
