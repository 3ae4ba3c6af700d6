//! What a session runs on: its configuration, its provider and key, its tools.
//!
//! Read once, when the session is opened. A key is in no file that is written here.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use shared::config::{Config, ProviderProfile, Sources};
use shared::fs::{self, Sync};
use shared::layout::{Layout, SessionDir};
use shared::process::{Family, Identity};
use shared::protocol::SessionId;
use shared::protocol::client::{ClientContext, ClientMessage, SessionStart};
use shared::registry::SessionMeta;
use shared::secret::Mask;
use tokio::sync::watch;

use super::Session;
use super::open::{OpenError, Opening};
use super::state::State;
use crate::agents::conversation::{Conversations, Limits, Markers, Snapshot};
use crate::agents::{self, Agents};
use crate::provider::{self, Provider};
use crate::runs::{Runs, Seat, environment_of_children};
use crate::tools::{self, Toolbox};
use crate::turn::prompt;
use crate::workspace::Workspace;

/// The part of a session's environment that is in no file: keys.
pub(super) type Secrets = BTreeMap<String, SecretString>;

/// The environment of a session has at most this many bytes on disk.
const ENV_BYTES: u64 = 1 << 20;

/// What a session is and runs on, from its files, its client and the configuration.
pub(super) struct Setup {
    pub(super) meta: SessionMeta,
    pub(super) env: BTreeMap<String, String>,
    pub(super) config: Config,
    pub(super) model: String,
    pub(super) provider: Rc<dyn Provider>,
    /// Whether its key came from a client that is gone.
    pub(super) lacks_key: bool,
}

impl Setup {
    pub(super) fn read(
        opening: &Opening,
        message: Option<&ClientMessage>,
        start: Option<&SessionStart>,
        secrets: &Secrets,
        dir: &SessionDir,
    ) -> Result<Self, OpenError> {
        let loaded = SessionMeta::load(dir).map_err(OpenError::io("read the session's meta file"))?;
        let is_new = loaded.is_none();
        let mut meta = match loaded {
            Some(meta) => meta,
            None => SessionMeta::of(opening.id, start.ok_or(OpenError::NotFound)?),
        };
        meta.config_path = meta.config_path.or_else(|| opening.config_path.clone());
        let mut env =
            environment(dir, client_context(message)).map_err(OpenError::io("read the session's environment"))?;
        env.extend(secrets.iter().map(|(name, secret)| (name.clone(), secret.expose_secret().to_owned())));
        let config = Config::load(&Sources {
            workspace: Some(meta.cwd.clone()),
            config_path: meta.config_path.clone(),
            env: env.clone(),
            overrides: meta.overrides.clone(),
            ..Sources::of(&opening.layout)
        })?;
        let profile = profile(&config, &meta)?;
        let key = Key::of(&profile, &env, &meta);
        if is_new && matches!(key, Key::Missing) {
            return Err(OpenError::Invalid(no_key(&config, &meta, &profile)));
        }
        meta.key_from_client = meta.key_from_client || matches!(key, Key::FromClient(_));
        let lacks_key = matches!(key, Key::Missing);
        let provider = make_provider(&config, &meta, &profile, key)?;
        Ok(Self { meta, env, config, model: profile.model, provider, lacks_key })
    }

    /// The part of the environment that is in no file.
    pub(super) fn secrets(&self) -> Secrets {
        secrets(&self.config, &self.env)
    }

    /// Writes the files of the session; a key is in none of them.
    pub(super) fn keep(&self, dir: &SessionDir, with_environment: bool, sync: Sync) -> io::Result<()> {
        self.meta.save(dir, sync)?;
        if with_environment { keep_environment(dir, &self.config, &self.env, sync) } else { Ok(()) }
    }
}

fn secrets(config: &Config, env: &BTreeMap<String, String>) -> Secrets {
    let of_file = without_keys(config, env);
    let kept_back = env.iter().filter(|(name, _)| !of_file.contains_key(*name));
    kept_back.map(|(name, value)| (name.clone(), SecretString::from(value.clone()))).collect()
}

/// What clients are told of a session whose key is gone.
pub(super) const KEY_IS_GONE: &str =
    "the key of this session came from a client that is gone; attach from a shell that has it, or configure one";

impl Session {
    /// Takes the key from a client that has it, for a session that lost its own with its worker.
    pub(super) fn take_key(&mut self, client: &ClientContext) {
        if !self.clients.lacks_key() {
            return;
        }
        let taken = || -> Result<Option<Rc<dyn Provider>>, OpenError> {
            let profile = profile(&self.config, &self.meta)?;
            match Key::of(&profile, &client.env, &self.meta) {
                Key::Missing => Ok(None),
                key => make_provider(&self.config, &self.meta, &profile, key).map(Some),
            }
        };
        match taken() {
            Ok(Some(provider)) => {
                let values = self.config.secret_values(&client.env);
                self.mask = Rc::new(Mask::of(values.iter().map(ExposeSecret::expose_secret)));
                self.secrets = secrets(&self.config, &client.env);
                self.provider = provider;
                self.clients.has_key();
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "a client's key cannot be used"),
        }
    }
}

/// What the turns of a session work with.
pub(super) struct Equipment {
    pub(super) mask: Rc<Mask>,
    pub(super) runs: Runs,
    pub(super) conversations: watch::Receiver<Snapshot>,
    pub(super) agents: Option<Rc<Agents>>,
    pub(super) tools: Toolbox,
    pub(super) instructions: Rc<str>,
}

impl Equipment {
    pub(super) fn of(
        setup: &Setup,
        layout: &Layout,
        id: SessionId,
        family: Family,
        state: &State,
    ) -> Result<Self, OpenError> {
        let Setup { meta, env, config, .. } = setup;
        let secrets = config.secret_values(env);
        let values = || secrets.iter().map(ExposeSecret::expose_secret);
        let seat = Seat {
            instance: layout.instance(),
            session: id,
            depth: meta.delegation_depth,
            parent: std::env::var(shared::process::PARENT).ok(),
        };
        let children_get = environment_of_children(env, &config.key_env_names(), values(), &config.tools.pass_env);
        let runs = Runs::new(family, seat, children_get);
        let limits = Limits {
            conversations: config.agent.max_conversations,
            idle: Duration::from_secs(config.agent.conversation_idle_seconds),
        };
        let owner = Identity::current().map_err(OpenError::io("read my own process"))?;
        let markers = Markers { dir: layout.conversations(), session: id, owner };
        // What cannot be read is forgotten: the agents keep their transcripts.
        let kept = serde_json::from_value(state.conversations.clone()).unwrap_or_default();
        let conversations = Conversations::new(limits, markers, kept);
        let watched = conversations.watch();
        let mut equipment = Self {
            mask: Rc::new(Mask::of(values())),
            runs,
            conversations: watched,
            agents: None,
            tools: Toolbox::none(),
            instructions: instructions(config, meta, None).into(),
        };
        if !meta.no_tools {
            let workspace = Rc::new(Workspace::open(&meta.cwd)?);
            let whose = agents::Session { layout: layout.clone(), workspace: workspace.clone() };
            let settings = agents::Settings::from(config);
            let agents = Rc::new(Agents::new(whose, settings, conversations, equipment.runs.clone()));
            equipment.tools = tools::of_session(&workspace, &agents, &equipment.runs, config)
                .map_err(|error| OpenError::Invalid(error.to_string()))?;
            equipment.instructions = instructions(config, meta, Some(&agents)).into();
            equipment.agents = Some(agents);
        }
        Ok(equipment)
    }
}

pub(super) fn client_context(message: Option<&ClientMessage>) -> Option<&ClientContext> {
    match message? {
        ClientMessage::SessionStart(start) => start.client.as_ref(),
        ClientMessage::SessionAttach(attach) => attach.client.as_ref(),
        _ => None,
    }
}

/// The client's environment; else the one that was kept; else the one that scvd was started with.
fn environment(dir: &SessionDir, context: Option<&ClientContext>) -> io::Result<BTreeMap<String, String>> {
    if let Some(context) = context {
        return Ok(context.env.clone());
    }
    match fs::read_bounded(&dir.env(), ENV_BYTES) {
        Ok(kept) => Ok(serde_json::from_slice(&kept)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()),
        Err(error) => Err(error),
    }
}

/// Keeps the environment without keys: those live in this process only.
fn keep_environment(dir: &SessionDir, config: &Config, env: &BTreeMap<String, String>, sync: Sync) -> io::Result<()> {
    fs::replace(&dir.env(), &serde_json::to_vec(&without_keys(config, env))?, sync)
}

/// The environment without keys.
fn without_keys<'a>(config: &Config, env: &'a BTreeMap<String, String>) -> BTreeMap<&'a String, &'a String> {
    let secrets = config.secret_values(env);
    let names = config.key_env_names();
    env.iter()
        .filter(|(name, value)| {
            !names.contains(name) && !secrets.iter().any(|secret| secret.expose_secret() == value.as_str())
        })
        .collect()
}

fn profile(config: &Config, meta: &SessionMeta) -> Result<ProviderProfile, OpenError> {
    let mut profile = config.provider_profile(meta.provider.as_deref())?;
    if let Some(model) = &meta.model {
        profile.model.clone_from(model);
    }
    if let Some(base_url) = &meta.base_url {
        profile.base_url.clone_from(base_url);
    }
    Ok(profile)
}

/// The provider's key, and whether a later worker would find it too.
enum Key {
    Configured(secrecy::SecretString),
    FromClient(secrecy::SecretString),
    NotNeeded,
    Missing,
}

impl Key {
    pub(super) fn of(profile: &ProviderProfile, env: &BTreeMap<String, String>, meta: &SessionMeta) -> Self {
        match (profile.api_key(env), profile.api_key(&BTreeMap::new())) {
            (Some(key), Some(configured)) if key.expose_secret() == configured.expose_secret() => Self::Configured(key),
            (Some(key), _) => Self::FromClient(key),
            // Endpoints that are not behind TLS are nearly always somebody's own machine.
            (None, _) if profile.base_url.starts_with("http://") && !meta.key_from_client => Self::NotNeeded,
            (None, _) => Self::Missing,
        }
    }
}

fn no_key(config: &Config, meta: &SessionMeta, profile: &ProviderProfile) -> String {
    let name = meta.provider.as_deref().unwrap_or(&config.provider.active);
    let variable = if profile.api_key_env.is_empty() { "SCV_API_KEY" } else { &profile.api_key_env };
    format!(
        "no API key for provider {name}: set {variable}, or providers.{name}.api_key in config.toml \
         (`scv config init` writes a starter)"
    )
}

fn make_provider(
    config: &Config,
    meta: &SessionMeta,
    profile: &ProviderProfile,
    key: Key,
) -> Result<Rc<dyn Provider>, OpenError> {
    let name = meta.provider.as_deref().unwrap_or(&config.provider.active);
    if profile.wire_api != shared::config::WireApi::Responses {
        return Err(OpenError::Invalid(format!("providers.{name}.wire_api: this release speaks \"responses\" only")));
    }
    let mut settings = provider::Settings::of(name, profile, &config.provider_limits, &BTreeMap::new());
    settings.api_key = match key {
        Key::Configured(key) | Key::FromClient(key) => Some(key),
        Key::NotNeeded | Key::Missing => None,
    };
    Ok(Rc::new(provider::responses::Responses::new(settings)))
}

fn instructions(config: &Config, meta: &SessionMeta, agents: Option<&Agents>) -> String {
    let delegating = agents.and_then(agents::prompt::section);
    prompt::system_prompt(&prompt::Parts {
        workspace: (!meta.no_tools).then_some(meta.cwd.as_path()),
        custom: meta.system_prompt.as_deref().or(Some(&config.agent.system_prompt)),
        delegating: delegating.as_deref(),
    })
}
