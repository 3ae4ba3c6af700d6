//! The configuration: every key with its default, what it may be, and the layers that set it.
//!
//! Reading it decides nothing but the values. Keys are listed once, in their section.

mod agents;
mod agree;
mod error;
mod key;
mod layers;
mod provider;
mod read;
mod session;
mod starter;
mod supervisor;
mod tighten;
mod tools;
mod web;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

pub use agents::{Agent, NAMES as AGENT_NAMES, Permissions, Transport};
pub use error::{ConfigError, Place, Problem};
pub use key::{Key, Kind, Tighten};
pub use layers::{Layers, Setting, Sources};
pub use provider::{API_KEY_ENV, Provider, ProviderKind, ProviderLimits, ProviderProfile, WireApi};
pub use session::{Context, MainAgent, Session, Skills, UsageLimits};
pub use starter::{STARTER, write_starter};
pub use supervisor::{CHANNELS, Channel, RemoteTools, Senders, Supervisor, Tui};
pub use tools::{ApprovalPolicy, TIMEOUT_CEILING_SECONDS, Tools};
pub use web::{Search, Web};

/// Seconds of a day.
const DAY_SECONDS: u64 = 86_400;

/// A name that people choose for a profile or an account.
const NAME: key::Rule = key::Rule {
    allowed: "a name of at most 64 letters, digits, _ or -",
    holds: |text| {
        !text.is_empty()
            && text.len() <= 64
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    },
};

/// Every key, section by section.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    const SECTIONS: [&[Key]; 14] = [
        Provider::KEYS,
        ProviderProfile::KEYS,
        ProviderLimits::KEYS,
        MainAgent::KEYS,
        Session::KEYS,
        Context::KEYS,
        Tools::KEYS,
        UsageLimits::KEYS,
        Supervisor::KEYS,
        Skills::KEYS,
        Web::KEYS,
        Agent::KEYS,
        Channel::KEYS,
        Tui::KEYS,
    ];
    SECTIONS.into_iter().flatten()
}

/// The whole configuration, checked.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Which profile is in use.
    pub provider: Provider,
    /// The model endpoints, by name.
    pub providers: BTreeMap<String, ProviderProfile>,
    /// Limits of every endpoint.
    pub provider_limits: ProviderLimits,
    /// The main agent.
    pub agent: MainAgent,
    /// One session.
    pub session: Session,
    /// What is sent to the model.
    pub context: Context,
    /// Tool calls.
    pub tools: Tools,
    /// Budgets of all sessions.
    pub usage: UsageLimits,
    /// The supervisor.
    pub supervisor: Supervisor,
    /// Skills.
    pub skills: Skills,
    /// Fetching and searching.
    pub web: Web,
    /// The agent CLIs, by name.
    pub agents: BTreeMap<String, Agent>,
    /// Chat accounts, by channel and account.
    pub channels: BTreeMap<String, BTreeMap<String, Channel>>,
    /// The terminal client.
    pub tui: Tui,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            provider: Provider::default(),
            providers: ProviderProfile::built_in(),
            provider_limits: ProviderLimits::default(),
            agent: MainAgent::default(),
            session: Session::default(),
            context: Context::default(),
            tools: Tools::default(),
            usage: UsageLimits::default(),
            supervisor: Supervisor::default(),
            skills: Skills::default(),
            web: Web::default(),
            agents: Agent::built_in(),
            channels: BTreeMap::new(),
            tui: Tui::default(),
        }
    }
}

impl Config {
    /// Reads all layers. A missing file in the home is no error; a broken one is, and so is a
    /// project that weakens something.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        Layers::read(sources)?.config()
    }

    /// The profile `name`, or the active one. Fails if there is none of that name, or if it
    /// names no model or no endpoint.
    pub fn provider_profile(&self, name: Option<&str>) -> Result<ProviderProfile, ConfigError> {
        let name = name.unwrap_or(&self.provider.active);
        let error = |key: String, problem| ConfigError { place: Place::Flag, key: Some(key), problem };
        let Some(profile) = self.providers.get(name) else {
            let names: Vec<&str> = self.providers.keys().map(String::as_str).collect();
            return Err(error("provider.active".into(), Problem::NoSuchName { names: names.join(", ") }));
        };
        for (key, value) in [("model", &profile.model), ("base_url", &profile.base_url)] {
            if value.is_empty() {
                let allowed = "set: the profile has none".into();
                return Err(error(format!("providers.{name}.{key}"), Problem::Value { allowed }));
            }
        }
        Ok(profile.clone())
    }

    /// The variables that any `*_key_env` names. Children of tools do not get them.
    pub fn key_env_names(&self) -> Vec<String> {
        let names = self.providers.values().map(|profile| &profile.api_key_env);
        let names: BTreeSet<&String> = names.chain([&self.web.brave_api_key_env]).filter(|n| !n.is_empty()).collect();
        names.into_iter().cloned().collect()
    }

    /// Every value that nobody may see: keys of the configuration, values of sensitive headers,
    /// and what the key variables hold in `env`. Sorted, none empty.
    pub fn secret_values(&self, env: &BTreeMap<String, String>) -> Vec<SecretString> {
        let configured = self.providers.values().flat_map(ProviderProfile::secrets);
        let names = self.key_env_names().into_iter().chain([API_KEY_ENV.into()]);
        let from_env = names.filter_map(|name| env.get(&name).map(String::as_str));
        let values: BTreeSet<&str> = configured.chain(from_env).filter(|value| !value.is_empty()).collect();
        values.into_iter().map(SecretString::from).collect()
    }
}

#[cfg(test)]
mod tests;
