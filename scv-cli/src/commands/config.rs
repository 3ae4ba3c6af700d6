//! `scv config`: settings with the place of each. Needs no supervisor, and no valid configuration
//! where that can be helped.

use std::io;

use clap::{Args, Subcommand};
use shared::config::{API_KEY_ENV, Layers, Setting, write_starter};

use crate::context::Context;
use crate::error::CliError;
use crate::output;

/// `scv config`
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Writes a commented configuration
    Init,
    /// Shows what was set, and where
    Show(Show),
    /// Prints where the configuration is
    Path,
    /// Says what is wrong with it
    Check,
}

/// `scv config show`
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// What nobody set, too
    #[arg(long)]
    all: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Config {
    /// Runs the verb.
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::Init => init(context),
            Self::Show(show) => {
                let settings = layers(context)?.settings(show.all, &context.env)?;
                if show.json { Ok(output::json(&json(&settings))?) } else { Ok(output::table(&rows(&settings))?) }
            }
            Self::Path => Ok(output::line(&context.layout.config().display().to_string())?),
            Self::Check => check(context),
        }
    }
}

fn layers(context: &Context) -> Result<Layers, CliError> {
    Ok(Layers::read(&context.sources(std::env::current_dir().ok()))?)
}

fn init(context: &Context) -> Result<(), CliError> {
    let path = context.layout.config();
    match write_starter(&context.layout) {
        Ok(path) if context.quiet => drop(path),
        Ok(path) => output::line(&format!("wrote {}", path.display()))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(CliError::usage(format!("{} exists already, and was not changed", path.display()))
                .hint("edit it, or move it away first"));
        }
        Err(error) => return Err(CliError::failed(format!("cannot write {}", path.display())).because(error)),
    }
    Ok(())
}

fn check(context: &Context) -> Result<(), CliError> {
    let config = layers(context)?.config()?;
    let profile = config.provider_profile(None)?;
    if profile.needs_key() && profile.api_key(&context.env).is_none() {
        return Err(no_key(&config.provider.active, &profile.api_key_env));
    }
    if context.quiet { Ok(()) } else { Ok(output::line("the configuration is fine")?) }
}

/// There is no key for an endpoint that wants one.
pub(super) fn no_key(profile: &str, variable: &str) -> CliError {
    let variable = if variable.is_empty() { API_KEY_ENV } else { variable };
    CliError::usage(format!("there is no API key for provider {profile}: {variable} is not set"))
        .hint(format!("set {variable}, or api_key_env in [providers.{profile}] (`scv config init` writes a starter)"))
}

fn shown(setting: &Setting) -> String {
    output::printable(setting.value.as_deref().unwrap_or("(hidden)"))
}

fn rows(settings: &[Setting]) -> Vec<Vec<String>> {
    settings
        .iter()
        .map(|setting| vec![format!("{} = {}", setting.key, shown(setting)), format!("# {}", setting.place)])
        .collect()
}

fn json(settings: &[Setting]) -> Vec<serde_json::Value> {
    let one = |setting: &Setting| serde_json::json!({ "key": setting.key, "value": setting.value, "hidden": setting.value.is_none(), "place": setting.place.to_string() });
    settings.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use shared::config::Place;

    use super::*;

    #[test]
    fn a_secret_is_hidden_entirely() {
        let setting = |value: Option<&str>| Setting {
            key: "providers.openai.api_key".into(),
            value: value.map(String::from),
            place: Place::File("/h/config.toml".into(), 7),
        };
        assert_eq!(rows(&[setting(None)])[0], ["providers.openai.api_key = (hidden)", "# /h/config.toml line 7"]);
        assert_eq!(json(&[setting(None)])[0]["value"], serde_json::Value::Null);
    }
}
