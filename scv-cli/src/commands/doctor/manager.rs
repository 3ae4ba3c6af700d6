//! The service manager that would start the supervisor at boot and after a crash.

use super::facts::Facts;
use super::finding::Finding;

const CHECK: &str = "systemd";

/// Looks.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    vec![match &facts.service {
        Some(_) => Finding::ok(CHECK, "your user manager answers"),
        None => Finding::warn(
            CHECK,
            "no user manager answers: the supervisor is kept up by a guard, and nothing starts it at boot",
            "log in with a session of your own (not by su or sudo), or go on without",
        ),
    }]
}
