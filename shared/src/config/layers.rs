//! The layers, lowest first: built-in, the instance's file, the project's, `--config`, variables, flags.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use secrecy::ExposeSecret;
use serde::Serialize;
use toml::{Table, Value};

use super::agree::agree;
use super::error::{ConfigError, Place, Problem};
use super::read::{self, Leaf};
use super::tighten::tighten;
use super::{Agent, Config, Provider, ProviderProfile};
use crate::layout::Layout;
use crate::secret::Mask;

/// The variables that set something, and what: `*` is the active profile.
const VARIABLES: [(&str, &str); 3] =
    [("SCV_PROVIDER", "provider.active"), ("SCV_MODEL", "providers.*.model"), ("SCV_BASE_URL", "providers.*.base_url")];

/// Where a configuration comes from.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The instance's home.
    pub home: PathBuf,
    /// The project, whose own file may only tighten.
    pub workspace: Option<PathBuf>,
    /// `--config` or `SCV_CONFIG`.
    pub config_path: Option<PathBuf>,
    /// The environment; only documented variables are read.
    pub env: BTreeMap<String, String>,
    /// Values of flags by dotted key, as TOML or bare text.
    pub overrides: BTreeMap<String, String>,
}

impl Sources {
    /// The instance's own configuration and nothing else.
    pub fn of(layout: &Layout) -> Self {
        Self {
            home: layout.home().to_owned(),
            workspace: None,
            config_path: None,
            env: BTreeMap::new(),
            overrides: BTreeMap::new(),
        }
    }

    fn home_file(&self) -> PathBuf {
        self.home.join("config.toml")
    }
}

/// One value as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The dotted key.
    pub key: String,
    /// The value as TOML; `None` for a secret that is set.
    pub value: Option<String>,
    /// Where it was set.
    pub place: Place,
}

/// The values that somebody set, each with the place that set it.
#[derive(Clone, Debug)]
pub struct Layers {
    set: BTreeMap<String, Leaf>,
    home: PathBuf,
}

impl Layers {
    /// Reads all layers. What is not there is left out, except a file that was asked for by name.
    pub fn read(sources: &Sources) -> Result<Self, ConfigError> {
        let home_file = sources.home_file();
        let set = read::file(&home_file)?.unwrap_or_default().into_iter().collect();
        let mut layers = Self { set, home: sources.home.clone() };
        if let Some(project) = sources.workspace.as_deref().and_then(|dir| project_file(dir, &home_file, &sources.env))
        {
            layers.add_project(&project)?;
        }
        if let Some(path) = &sources.config_path {
            layers.set.extend(read::file(path)?.ok_or_else(|| missing(path))?);
        }
        layers.add_texts(sources)?;
        Ok(layers)
    }

    /// The typed configuration: what was set, over the defaults. Fails where values do not fit together.
    pub fn config(&self) -> Result<Config, ConfigError> {
        let mut table = self.table();
        // A profile or agent that is built in keeps what was not set in it; a new one gets the
        // type's defaults.
        complete(&mut table, "providers", ProviderProfile::built_in());
        complete(&mut table, "agents", Agent::built_in());
        let mut config: Config = Value::Table(table).try_into().map_err(|_| ConfigError {
            // Every value was checked; this is a table of keys that disagrees with its type.
            place: Place::BuiltIn,
            key: None,
            problem: Problem::Syntax("a value does not fit its type".into()),
        })?;
        fill(&mut config.providers, ProviderProfile::built_in());
        fill(&mut config.agents, Agent::built_in());
        if config.skills.user_dir.as_os_str().is_empty() {
            config.skills.user_dir = self.home.join("skills");
        }
        agree(&mut config, self)?;
        Ok(config)
    }

    /// The values in force for people, without secrets. `all` includes those that nobody set.
    pub fn settings(&self, all: bool, env: &BTreeMap<String, String>) -> Result<Vec<Setting>, ConfigError> {
        let config = self.config()?;
        let secrets = config.secret_values(env);
        let mask = Mask::of(secrets.iter().map(ExposeSecret::expose_secret));
        // Secrets are never serialized; where one was set, only that is shown.
        let secret = |(key, leaf): (&String, &Leaf)| (key.clone(), leaf.key.kind.is_secret().then_some(None));
        let mut values: BTreeMap<String, Option<Value>> =
            self.set.iter().map(secret).filter_map(|(key, value)| Some((key, value?))).collect();
        values.extend(read::flat(&config).into_iter().map(|(key, value)| (key, Some(value))));
        let shown = values.into_iter().filter(|(key, _)| all || self.set.contains_key(key));
        let setting = |(key, value): (String, Option<Value>)| Setting {
            place: self.place(&key),
            key,
            value: value.map(|value| mask.apply(&value.to_string()).into_owned()),
        };
        Ok(shown.map(setting).collect())
    }

    /// Where the value of a key was set.
    pub(super) fn place(&self, key: &str) -> Place {
        self.set.get(key).map_or(Place::BuiltIn, |leaf| leaf.place.clone())
    }

    fn add_project(&mut self, path: &Path) -> Result<(), ConfigError> {
        let Some(wanted) = read::file(path)? else { return Ok(()) };
        let now = read::flat(&self.config()?);
        for (key, leaf) in wanted {
            let leaf = tighten(&key, now.get(&key), leaf)?;
            self.set.insert(key, leaf);
        }
        Ok(())
    }

    /// Variables, then flags.
    fn add_texts(&mut self, sources: &Sources) -> Result<(), ConfigError> {
        for (name, path) in VARIABLES {
            let Some(value) = sources.env.get(name).filter(|value| !value.is_empty()) else { continue };
            let path = path.replace('*', &self.active(sources));
            let (path, leaf) = read::text(&path, value, Place::Variable(name.into()))?;
            self.set.insert(path, leaf);
        }
        for (path, value) in &sources.overrides {
            let (path, leaf) = read::text(path, value, Place::Flag)?;
            self.set.insert(path, leaf);
        }
        Ok(())
    }

    /// The profile that variables are about: the one that a flag names wins already here.
    fn active(&self, sources: &Sources) -> String {
        let flag = sources.overrides.get("provider.active").map(|name| name.trim_matches('"').to_owned());
        let set = || self.set.get("provider.active")?.value.as_str().map(String::from);
        flag.or_else(set).unwrap_or_else(|| Provider::default().active)
    }

    fn table(&self) -> Table {
        let mut root = Table::new();
        for (path, leaf) in &self.set {
            let (parents, name) = path.rsplit_once('.').unwrap_or(("", path));
            let mut parents = parents.split('.').filter(|part| !part.is_empty());
            if let Some(table) = parents.try_fold(&mut root, |table, part| {
                let inner = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
                inner.as_table_mut()
            }) {
                table.insert(name.into(), leaf.value.clone());
            }
        }
        root
    }
}

/// Gives the entries of `section` that are built in what was not set in them.
fn complete<T: Serialize>(root: &mut Table, section: &str, built_in: BTreeMap<String, T>) {
    let Some(section) = root.get_mut(section).and_then(Value::as_table_mut) else { return };
    for (name, defaults) in built_in {
        let Some(entry) = section.get_mut(&name).and_then(Value::as_table_mut) else { continue };
        for (key, value) in Table::try_from(defaults).unwrap_or_default() {
            entry.entry(key).or_insert(value);
        }
    }
}

/// Adds the built-in entries that nobody mentioned.
fn fill<T>(map: &mut BTreeMap<String, T>, built_in: BTreeMap<String, T>) {
    for (name, value) in built_in {
        map.entry(name).or_insert(value);
    }
}

/// The project's file, unless it is the instance's own (a workspace that is the home's parent), or
/// that of the user's default instance: `~/.scv/config.toml` is no project's, whoever works in `~`.
fn project_file(workspace: &Path, home_file: &Path, env: &BTreeMap<String, String>) -> Option<PathBuf> {
    let path = workspace.join(".scv/config.toml");
    let default = env.get("HOME").map(|home| Path::new(home).join(".scv/config.toml"));
    let is = |other: &Path| path.canonicalize().is_ok_and(|path| other.canonicalize().is_ok_and(|other| other == path));
    (!is(home_file) && !default.is_some_and(|default| is(&default))).then_some(path)
}

fn missing(path: &Path) -> ConfigError {
    let error = std::io::Error::from_raw_os_error(rustix::io::Errno::NOENT.raw_os_error());
    ConfigError { place: Place::File(path.to_owned(), 0), key: None, problem: Problem::Unreadable(error) }
}
