//! Limits of this process that hold only while it starts another.
//!
//! Limits are inherited, so what is set here for a moment is what the new process has for good.
//! The caller makes sure that only one thread starts something at a time.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Puts a limit back when dropped.
pub(super) struct Lent {
    resource: Resource,
    before: Rlimit,
}

impl Lent {
    /// Sets `soft`, and `hard` as well where that is allowed. Best effort: under a lower hard limit
    /// that may not be raised, nothing is changed.
    pub(super) fn set(resource: Resource, soft: u64, hard: Option<u64>) -> Self {
        let before = getrlimit(resource);
        let wanted = Rlimit { current: Some(soft), maximum: hard.or(before.maximum) };
        if setrlimit(resource, wanted).is_err() && before.maximum.is_none_or(|hard| soft <= hard) {
            let _ = setrlimit(resource, Rlimit { current: Some(soft), maximum: before.maximum });
        }
        Self { resource, before }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if setrlimit(self.resource, self.before).is_err() {
            // Without privilege a lowered hard limit stays; the soft one goes as near as it may.
            let now = getrlimit(self.resource);
            let current = match (self.before.current, now.maximum) {
                (Some(before), Some(hard)) => Some(before.min(hard)),
                (before, hard) => before.or(hard),
            };
            let _ = setrlimit(self.resource, Rlimit { current, maximum: now.maximum });
        }
    }
}
