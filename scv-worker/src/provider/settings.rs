//! What a provider profile says about its endpoint.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use shared::config::{ProviderLimits, ProviderProfile};
use shared::secret::Mask;

/// One provider profile, checked by whoever read it. Keys show in no debug output.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The name of the profile, `[providers.<profile>]`; errors point at it.
    pub profile: String,
    /// Where `/responses` is, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// The bearer key; none for a local server.
    pub api_key: Option<SecretString>,
    /// Further headers; their values may be keys.
    pub headers: Vec<(String, SecretString)>,
    /// Sent as `reasoning.effort`.
    pub reasoning_effort: Option<String>,
    /// Of a whole request: retries and stream included.
    pub timeout: Duration,
    /// The longest time without an event on a stream; comments and keep-alives are none.
    pub event_idle: Duration,
    /// How often a request is sent again, before any output.
    pub max_retries: u32,
    /// Calls of one response.
    pub max_tool_calls: usize,
    /// Arguments of one call, decoded.
    pub max_tool_arguments_bytes: usize,
}

impl Settings {
    /// The defaults of `config.toml` for `profile` at `base_url`.
    pub(crate) fn new(profile: &str, base_url: &str) -> Self {
        Self {
            profile: profile.to_owned(),
            base_url: base_url.to_owned(),
            api_key: None,
            headers: Vec::new(),
            reasoning_effort: None,
            timeout: Duration::from_mins(10),
            event_idle: Duration::from_mins(2),
            max_retries: 2,
            max_tool_calls: 32,
            max_tool_arguments_bytes: 256 << 10,
        }
    }

    /// What `profile` and `limits` of the configuration say; the key is looked up in `env`.
    pub(crate) fn of(
        name: &str,
        profile: &ProviderProfile,
        limits: &ProviderLimits,
        env: &BTreeMap<String, String>,
    ) -> Self {
        Self {
            api_key: profile.api_key(env),
            headers: profile.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            reasoning_effort: Some(profile.reasoning_effort.clone()).filter(|effort| !effort.is_empty()),
            timeout: Duration::from_secs(profile.timeout_seconds),
            event_idle: Duration::from_secs(limits.event_idle_seconds),
            max_retries: limits.max_retries,
            max_tool_calls: limits.max_tool_calls,
            max_tool_arguments_bytes: limits.max_tool_arguments_bytes,
            ..Self::new(name, &profile.base_url)
        }
    }

    /// Every value that no message may show. Headers are masked whole and without their scheme.
    pub(super) fn mask(&self) -> Mask {
        let key = self.api_key.iter().map(|key| key.expose_secret().trim());
        let headers = self.headers.iter().map(|(_, value)| value.expose_secret());
        let bare = headers.clone().filter_map(|value| value.rsplit(' ').next());
        Mask::of(key.chain(headers).chain(bare))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_says_nothing_has_the_documented_defaults() {
        let profile = ProviderProfile { base_url: "http://localhost/v1".to_owned(), ..ProviderProfile::default() };
        let settings = Settings::of("x", &profile, &ProviderLimits::default(), &BTreeMap::new());
        assert_eq!(format!("{settings:?}"), format!("{:?}", Settings::new("x", "http://localhost/v1")));
    }

    #[test]
    fn keys_are_in_no_debug_output_and_a_header_is_masked_without_its_scheme() {
        let mut settings = Settings::new("x", "http://localhost/v1");
        settings.api_key = Some("key-value-1".into());
        settings.headers = vec![("authorization".to_owned(), "Basic header-value-2".into())];
        let debug = format!("{settings:?}");
        assert!(!debug.contains("key-value-1") && !debug.contains("header-value-2"), "{debug}");
        assert_eq!(settings.mask().apply("key-value-1 header-value-2"), "[secret] [secret]");
    }
}
