//! Whether sessions outlive the last logout.

use super::facts::Facts;
use super::finding::Finding;
use crate::service::linger::{self, Linger};

const CHECK: &str = "linger";

/// Looks, where a user manager runs that could go.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    if facts.service.is_none() {
        return Vec::new();
    }
    vec![match linger::look(facts.context) {
        Linger::On => Finding::ok(CHECK, "sessions go on after logout, and start at boot"),
        Linger::Off { command } => Finding::warn(CHECK, "sessions end at the last logout", command),
    }]
}
