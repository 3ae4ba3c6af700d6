//! A place in a reply where the model waits for the test.

use std::sync::Arc;

use tokio::sync::watch;

/// Holds a reply until the test releases it. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<State>>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    is_reached: bool,
    is_released: bool,
    has_left: bool,
}

impl Gate {
    /// A closed gate.
    #[expect(clippy::new_without_default, reason = "a gate stands for one place, not for a value")]
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::default()))
    }

    /// Lets the reply go on.
    pub fn release(&self) {
        self.0.send_modify(|state| state.is_released = true);
    }

    /// Waits until everything before the gate was sent.
    pub async fn reached(&self) {
        self.wait(|state| state.is_reached).await;
    }

    /// Waits until the client closed its connection at the gate.
    pub async fn left(&self) {
        self.wait(|state| state.has_left).await;
    }

    pub(super) async fn pass(&self) {
        self.0.send_modify(|state| state.is_reached = true);
        self.wait(|state| state.is_released).await;
    }

    pub(super) fn leave(&self) {
        self.0.send_modify(|state| state.has_left = true);
    }

    async fn wait(&self, until: impl Fn(&State) -> bool) {
        // The sender is held here, so it cannot be gone.
        let _ = self.0.subscribe().wait_for(until).await;
    }
}
