//! Values that are allowed one by one and have to fit together.

use super::error::{ConfigError, Place, Problem};
use super::layers::Layers;
use super::{Agent, Config};

/// Checks `config`, whose values `layers` set. Limits that nobody set follow their ceiling down.
pub(super) fn agree(config: &mut Config, layers: &Layers) -> Result<(), ConfigError> {
    let wrong = |key: &str, problem| ConfigError { place: layers.place(key), key: Some(key.into()), problem };
    let has_to_be = |key: &str, allowed: String| Err(wrong(key, Problem::Value { allowed }));

    if !config.providers.contains_key(&config.provider.active) {
        let names: Vec<&str> = config.providers.keys().map(String::as_str).collect();
        return Err(wrong("provider.active", Problem::NoSuchName { names: names.join(", ") }));
    }

    let ceiling = config.tools.max_timeout_seconds;
    for (key, limit) in [
        ("tools.command_timeout_seconds", &mut config.tools.command_timeout_seconds),
        ("tools.agent_timeout_seconds", &mut config.tools.agent_timeout_seconds),
    ] {
        // Whoever sets both has made a mistake; who only lowers the ceiling means the limits, too.
        let one_hand = same_file(&layers.place(key), &layers.place("tools.max_timeout_seconds"));
        if *limit > ceiling && one_hand {
            return has_to_be(key, format!("at most tools.max_timeout_seconds, which is {ceiling}"));
        }
        *limit = ceiling.min(*limit);
    }

    let context = &config.context;
    if context.reserve_output_tokens + context.safety_margin_tokens >= context.max_tokens {
        // The one that somebody set is the one to look at.
        let keys = ["context.max_tokens", "context.reserve_output_tokens", "context.safety_margin_tokens"];
        let key = keys.into_iter().find(|key| layers.place(key) != Place::BuiltIn).unwrap_or(keys[0]);
        let allowed =
            "such that context.max_tokens is more than reserve_output_tokens and safety_margin_tokens together";
        return has_to_be(key, allowed.into());
    }

    for (name, Agent { model, effort, model_args, effort_args, .. }) in &config.agents {
        for (key, value, args) in [("model", model, model_args), ("effort", effort, effort_args)] {
            // A nested session takes its model in the protocol, not as an argument.
            if args.is_empty() && !value.is_empty() && name != "scv" {
                let key = format!("agents.{name}.{key}");
                return has_to_be(&key, format!("empty: {key}_args offers no choice"));
            }
        }
    }
    Ok(())
}

fn same_file(a: &Place, b: &Place) -> bool {
    match (a, b) {
        (Place::File(a, _), Place::File(b, _)) => a == b,
        (Place::BuiltIn, _) => false,
        (a, b) => a == b,
    }
}
