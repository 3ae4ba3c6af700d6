//! Questions that wait for a person. Several may wait, each with its deadline; the first answer wins.

use std::collections::BTreeMap;
use std::time::Duration;

use shared::protocol::limits;
use shared::protocol::server::ApprovalRequest;
use shared::text;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Answer;

/// Why nobody's silence is a no of the user's.
pub(crate) const NOBODY: &str = "denied: nobody could answer in time; it was not the user who said no";

/// What the model is told when a person says no.
const BY_USER: &str = "denied by the user";

/// What the model reads of a client's no: the client's reason where it gave one.
pub(crate) fn denial(reason: Option<&str>) -> String {
    match reason.map(|reason| text::one_line(reason, limits::REASON_BYTES)).filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("denied: {reason}"),
        None => BY_USER.to_owned(),
    }
}

/// A question that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// As clients were asked.
    pub request: ApprovalRequest,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Answer>,
    /// Since when it waits.
    pub since: Instant,
    /// The number of the event that asked.
    pub seq: u64,
}

/// How long a question waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// With somebody attached who can answer.
    pub attended: Duration,
    /// With nobody.
    pub unattended: Duration,
}

/// The questions of one session.
#[derive(Debug)]
pub(crate) struct Broker {
    waiting: BTreeMap<String, Waiting>,
    patience: Patience,
}

impl Broker {
    /// No question yet.
    pub(crate) fn new(patience: Patience) -> Self {
        Self { waiting: BTreeMap::new(), patience }
    }

    /// How long a question waits.
    pub(crate) fn patience(&self, attended: bool) -> Duration {
        if attended { self.patience.attended } else { self.patience.unattended }
    }

    /// Adds a question.
    pub(crate) fn insert(&mut self, waiting: Waiting) {
        self.waiting.insert(waiting.request.approval_id.clone(), waiting);
    }

    /// Takes a question that is answered now; `None` if it was answered before.
    pub(crate) fn take(&mut self, approval_id: &str) -> Option<Waiting> {
        self.waiting.remove(approval_id)
    }

    /// The questions that wait and were asked up to number `seq`.
    pub(crate) fn asked_until(&self, seq: u64) -> impl Iterator<Item = &ApprovalRequest> {
        self.waiting.values().filter(move |waiting| waiting.seq <= seq).map(|waiting| &waiting.request)
    }

    /// How many questions wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// When the next question runs out.
    pub(crate) fn deadline(&self, attended: bool) -> Option<Instant> {
        self.waiting.values().map(|waiting| waiting.since + self.patience(attended)).min()
    }

    /// The questions that have run out.
    pub(crate) fn expired(&self, now: Instant, attended: bool) -> Vec<String> {
        let patience = self.patience(attended);
        self.waiting
            .values()
            .filter(|waiting| waiting.since + patience <= now)
            .map(|waiting| waiting.request.approval_id.clone())
            .collect()
    }

    /// Every question, when the turn ends.
    pub(crate) fn drain(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_says_why_is_not_taken_for_a_person() {
        assert_eq!(denial(None), BY_USER);
        assert_eq!(denial(Some(" ")), BY_USER);
        assert_eq!(denial(Some("no\nterminal")), "denied: no terminal");
        assert!(denial(Some(&"x".repeat(1 << 20))).len() <= "denied: ".len() + limits::REASON_BYTES);
    }
}
