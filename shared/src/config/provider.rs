//! `[provider]`, `[providers.<name>]`, `[provider_limits]`: which model endpoint, and its limits.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::key::{ANY, ENV_NAME, Kind, Rule, URL, int, section};

/// The variable that overrides every profile's key.
pub const API_KEY_ENV: &str = "SCV_API_KEY";

/// How a request looks on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WireApi {
    /// The Responses API.
    #[default]
    Responses,
    /// Chat Completions.
    Chat,
}

/// What kind of endpoint it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderKind {
    /// An endpoint that speaks the wire formats of `OpenAI`.
    #[default]
    OpenaiCompatible,
}

/// A model's name.
const MODEL: Rule = Rule {
    allowed: "a model's name of at most 256 bytes, without blanks",
    holds: |text| text.len() <= 256 && !text.contains(|c: char| c.is_whitespace() || c.is_control()),
};

section! {
    /// `[provider]`
    Provider in "provider" {
        /// The profile in use: a name below `[providers]`.
        active: String = "openai".into(), Kind::Text(super::NAME), Never;
    }
}

section! {
    /// `[providers.<name>]`: one model endpoint.
    ProviderProfile in "providers.*" {
        /// What kind of endpoint it is.
        kind: ProviderKind = ProviderKind::OpenaiCompatible, Kind::Choice(&["openai-compatible"]), Never;
        /// How a request looks on the wire.
        wire_api: WireApi = WireApi::Responses, Kind::Choice(&["responses", "chat"]), Never;
        /// The model.
        model: String = String::new(), Kind::Text(MODEL), Never;
        /// The endpoint, without a query; `/responses` is added to it.
        base_url: String = String::new(), Kind::Text(URL), Never;
        /// The key itself. Rather name a variable in `api_key_env`.
        #[serde(skip_serializing)]
        #[schemars(with = "String")]
        api_key: SecretString = SecretString::default(), Kind::Secret, Never;
        /// The variable that holds the key.
        api_key_env: String = String::new(), Kind::Text(ENV_NAME), Never;
        /// Headers of every request. Their values are treated as secrets.
        #[serde(skip_serializing)]
        #[schemars(with = "BTreeMap<String, String>")]
        headers: BTreeMap<String, SecretString> = BTreeMap::new(), Kind::Secrets, Never;
        /// Limit of a whole request in seconds, stream included; 1 to 86400.
        timeout_seconds: u64 = 600, int(1, super::DAY_SECONDS), Lower;
        /// Whether the model takes images.
        image_input: bool = true, Kind::Bool, Off;
        /// How much the model should think, in the endpoint's own words; empty: its default.
        reasoning_effort: String = String::new(), Kind::Text(ANY), Never;
    }
}

section! {
    /// `[provider_limits]`
    ProviderLimits in "provider_limits" {
        /// Retries after 429, 5xx, a refused or a reset connection, before the first byte of output; at most 10.
        max_retries: u32 = 2, int(0, 10), Lower;
        /// A stream without an event for this many seconds is cut (comments are no events); 1 to 3600.
        event_idle_seconds: u64 = 120, int(1, 3600), Lower;
        /// Tool calls of one response; at most 128.
        max_tool_calls: usize = 32, int(1, 128), Lower;
        /// Arguments of one tool call, in bytes; at most 1 MiB.
        max_tool_arguments_bytes: usize = 262_144, int(1, 1 << 20), Lower;
    }
}

impl ProviderProfile {
    /// The profiles that exist without a configuration.
    pub(super) fn built_in() -> BTreeMap<String, Self> {
        let openai = Self {
            model: "gpt-4.1-mini".into(),
            base_url: "https://api.openai.com/v1".into(),
            api_key_env: "OPENAI_API_KEY".into(),
            ..Self::default()
        };
        BTreeMap::from([("openai".into(), openai)])
    }

    /// The key: `SCV_API_KEY`, else `api_key`, else the variable that `api_key_env` names.
    /// Endpoints on one's own machine often need none.
    pub fn api_key(&self, env: &BTreeMap<String, String>) -> Option<SecretString> {
        let from_env = |name: &str| env.get(name).filter(|value| !value.is_empty()).map(|v| v.as_str().into());
        from_env(API_KEY_ENV)
            .or_else(|| (!self.api_key.expose_secret().is_empty()).then(|| self.api_key.clone()))
            .or_else(|| from_env(&self.api_key_env))
    }

    /// Whether a request without a key is hopeless. Endpoints that are not behind TLS are nearly
    /// always on somebody's own machine, and want none.
    pub fn needs_key(&self) -> bool {
        !self.base_url.starts_with("http://")
    }

    /// Values of this profile that nobody may see: the key, and what sensitive headers hold.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let headers = self.headers.iter().filter(|(name, _)| is_sensitive(name));
        // `Authorization: Bearer x`: the scheme is no secret, and the key may stand alone elsewhere.
        let headers = headers.map(|(_, value)| value.expose_secret().rsplit(' ').next().unwrap_or_default());
        std::iter::once(self.api_key.expose_secret()).chain(headers)
    }
}

/// Whether a header of this name carries a secret. Others are hidden too, but their values are
/// ordinary words, which must not vanish from texts and environments.
fn is_sensitive(header: &str) -> bool {
    let header = header.to_ascii_lowercase();
    ["auth", "cookie", "key", "secret", "token"].iter().any(|word| header.contains(word))
}
