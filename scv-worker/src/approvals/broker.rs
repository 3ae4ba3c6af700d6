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
    /// Since when nobody who can answer is there.
    alone_since: Option<Instant>,
}

impl Broker {
    /// No question yet, and nobody there.
    pub(crate) fn new(patience: Patience) -> Self {
        Self { waiting: BTreeMap::new(), patience, alone_since: Some(Instant::now()) }
    }

    /// Notes whether somebody who can answer is there now.
    pub(crate) fn attend(&mut self, attended: bool, now: Instant) {
        self.alone_since = if attended { None } else { Some(self.alone_since.unwrap_or(now)) };
    }

    /// How long a question that is asked now waits.
    pub(crate) fn patience(&self) -> Duration {
        if self.alone_since.is_none() { self.patience.attended } else { self.patience.unattended }
    }

    /// When a question runs out. With nobody there that is counted from when the last one left:
    /// whoever thinks for an hour and loses the connection for a second has not said no.
    fn due(&self, waiting: &Waiting) -> Instant {
        match self.alone_since {
            None => waiting.since + self.patience.attended,
            Some(alone) => waiting.since.max(alone) + self.patience.unattended,
        }
    }

    /// Adds a question.
    pub(crate) fn insert(&mut self, waiting: Waiting) {
        self.waiting.insert(waiting.request.approval_id.clone(), waiting);
    }

    /// Takes a question that is answered now; `None` if it was answered before.
    pub(crate) fn take(&mut self, approval_id: &str) -> Option<Waiting> {
        self.waiting.remove(approval_id)
    }

    /// The questions that wait and were asked up to number `seq`, each with the time that it has left.
    pub(crate) fn asked_until(&self, seq: u64, now: Instant) -> impl Iterator<Item = (&ApprovalRequest, Duration)> {
        let asked = self.waiting.values().filter(move |waiting| waiting.seq <= seq);
        asked.map(move |waiting| (&waiting.request, self.due(waiting).saturating_duration_since(now)))
    }

    /// How many questions wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// When the next question runs out.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.values().map(|waiting| self.due(waiting)).min()
    }

    /// The questions that have run out.
    pub(crate) fn expired(&self, now: Instant) -> Vec<String> {
        let expired = self.waiting.values().filter(|waiting| self.due(waiting) <= now);
        expired.map(|waiting| waiting.request.approval_id.clone()).collect()
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

    #[test]
    fn with_nobody_there_the_time_is_counted_from_when_the_last_one_left() {
        let (minute, hour) = (Duration::from_mins(1), Duration::from_hours(1));
        let start = Instant::now();
        let mut broker = Broker::new(Patience { attended: 24 * hour, unattended: minute });
        assert_eq!(broker.patience(), minute);
        broker.attend(true, start);
        assert_eq!(broker.patience(), 24 * hour);
        broker.insert(Waiting {
            request: ApprovalRequest {
                approval_id: "a".into(),
                call_id: "c".into(),
                name: "bash".into(),
                risk: shared::protocol::server::Risk::Process,
                cwd: "/w".into(),
                summary: String::new(),
                expires_unix_ms: None,
            },
            answer: oneshot::channel().0,
            since: start,
            seq: 1,
        });
        assert_eq!(broker.deadline(), Some(start + 24 * hour));
        for again in [hour, hour + minute / 2] {
            broker.attend(false, start + again);
            assert_eq!(broker.deadline(), Some(start + hour + minute), "still alone");
        }
        broker.attend(true, start + 2 * hour);
        assert!(broker.expired(start + 2 * hour).is_empty(), "somebody came back");
        broker.attend(false, start + 3 * hour);
        assert!(broker.expired(start + 3 * hour).is_empty());
        assert_eq!(broker.expired(start + 3 * hour + minute), ["a"]);
    }
}
