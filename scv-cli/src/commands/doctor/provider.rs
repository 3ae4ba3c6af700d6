//! The model endpoint: configured, and with a key. It is not spoken to.

use shared::config::{API_KEY_ENV, Config};

use super::facts::Facts;
use super::finding::Finding;
use crate::commands::config::no_key;

const CHECK: &str = "provider";

/// Looks; a configuration that cannot be read is told by its own check.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    facts.config.as_ref().map(|config| vec![judge(config, &facts.context.env)]).unwrap_or_default()
}

fn judge(config: &Config, env: &std::collections::BTreeMap<String, String>) -> Finding {
    let name = &config.provider.active;
    let profile = match config.provider_profile(None) {
        Ok(profile) => profile,
        Err(error) => return Finding::error(CHECK, &error.into()),
    };
    let says = format!("{name}, model {}", profile.model);
    // Where the key is, never what it is: a variable is of this shell alone.
    let is_set = |name: &str| env.get(name).is_some_and(|value| !value.is_empty());
    match profile.api_key(env) {
        None if profile.needs_key() => Finding::error(CHECK, &no_key(name, &profile.api_key_env)),
        None => Finding::ok(CHECK, format!("{says}, without a key")),
        Some(_) if is_set(API_KEY_ENV) => Finding::ok(CHECK, format!("{says}, key from {API_KEY_ENV} of this shell")),
        Some(_) if profile.api_key(&std::collections::BTreeMap::new()).is_some() => {
            Finding::ok(CHECK, format!("{says}, key from the configuration"))
        }
        Some(_) => Finding::ok(CHECK, format!("{says}, key from {} of this shell", profile.api_key_env)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::finding::State;
    use super::*;

    #[test]
    fn the_place_of_a_key_is_told_and_never_the_key() {
        let config = Config::default();
        assert_eq!(judge(&config, &BTreeMap::new()).state, State::Fail);
        for name in ["OPENAI_API_KEY", API_KEY_ENV] {
            let found = judge(&config, &BTreeMap::from([(name.to_owned(), "sk-secret".to_owned())]));
            assert_eq!(found.state, State::Ok);
            assert!(found.says.contains(name) && !found.says.contains("sk-"), "{found:?}");
        }
        let mut nobody = Config::default();
        nobody.provider.active = "nobody".into();
        assert_eq!(judge(&nobody, &BTreeMap::new()).state, State::Fail);
    }
}
