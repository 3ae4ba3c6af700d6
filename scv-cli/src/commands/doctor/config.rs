//! The configuration, and whether the supervisor runs with it.

use super::facts::Facts;
use super::finding::Finding;

const CHECK: &str = "config";

/// Looks.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let path = facts.context.layout.config();
    match &facts.config {
        Err(error) => vec![Finding::error(CHECK, error)],
        Ok(_) if facts.status().is_some_and(|status| status.config_error.is_some()) => vec![Finding::warn(
            CHECK,
            "the supervisor does not run with it yet: it was broken when it was read",
            "`scv restart` has it read again",
        )],
        Ok(_) if path.exists() => vec![Finding::ok(CHECK, path.display().to_string())],
        Ok(_) => vec![Finding::ok(CHECK, "the defaults: there is no config.toml (`scv config init` writes one)")],
    }
}
