//! Two clocks over one request: no event for too long, and too long in all.
//!
//! What an event is, is the caller's to say: whoever reads keep-alives skips them inside the
//! future that is watched.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// Which clock ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    /// No event in time.
    Idle,
    /// The whole request took too long.
    Total,
}

/// The clocks of one request, retries included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watchdog {
    idle: Duration,
    deadline: Instant,
}

impl Watchdog {
    /// Starts the clock of the whole request.
    pub(super) fn start(total: Duration, idle: Duration) -> Self {
        Self { idle, deadline: Instant::now() + total }
    }

    /// Waits for the next event. Only this wait counts as idle, not what is done between two.
    pub(super) async fn event<T>(&self, next: impl Future<Output = T>) -> Result<T, Expired> {
        let idle = Instant::now() + self.idle;
        let expired = if idle < self.deadline { Expired::Idle } else { Expired::Total };
        timeout_at(idle.min(self.deadline), next).await.map_err(|_| expired)
    }

    /// Waits for what is no event, such as a reader of ours.
    pub(super) async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, Expired> {
        timeout_at(self.deadline, work).await.map_err(|_| Expired::Total)
    }

    /// Whether `delay` from now is still before the deadline.
    pub(super) fn allows(&self, delay: Duration) -> bool {
        Instant::now() + delay < self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(5);
    const LONG: Duration = Duration::from_mins(10);

    #[tokio::test]
    async fn the_shorter_clock_ends_the_wait() {
        assert_eq!(Watchdog::start(LONG, SHORT).event(std::future::pending::<()>()).await, Err(Expired::Idle));
        assert_eq!(Watchdog::start(SHORT, LONG).event(std::future::pending::<()>()).await, Err(Expired::Total));
        assert_eq!(Watchdog::start(SHORT, LONG).within(std::future::pending::<()>()).await, Err(Expired::Total));
    }

    #[tokio::test]
    async fn only_the_whole_request_limits_our_own_waits() {
        let watchdog = Watchdog::start(LONG, Duration::ZERO);
        assert_eq!(watchdog.within(tokio::time::sleep(SHORT)).await, Ok(()));
        assert!(watchdog.allows(SHORT) && !watchdog.allows(LONG));
    }
}
