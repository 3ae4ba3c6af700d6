//! What the black-box tests stand on: an instance of its own, raw protocol clients, process looks.
//!
//! Nothing here knows how SCV works inside; it starts the real binaries and reads what they say.

#![allow(clippy::missing_panics_doc, reason = "test support reports by panicking; that is its purpose")]

pub mod agents;
pub mod at_rest;
pub mod cutting;
pub mod env;
pub mod fakes;
pub mod golden;
pub mod installed;
pub mod killer;
pub mod processes;
pub mod program;
pub mod session;
pub mod strict;
pub mod systemd;
pub mod talk;
pub mod terminal;
pub mod wire;

pub use env::{TestEnv, eventually};
pub use installed::Installed;
pub use killer::{Killer, Moment};
pub use program::{Output, Program};

pub use session::Attached;
pub use talk::Talk;
pub use wire::Wire;

/// How long a test waits for an event before it fails with all it has seen. Generous: a loaded
/// two-core machine must not fail a test that only waits.
pub const DEADLINE: std::time::Duration = std::time::Duration::from_mins(1);

/// Waits for an event of a fake, in a test without a runtime.
#[track_caller]
pub fn wait<T>(event: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let event = runtime.block_on(async { tokio::time::timeout(DEADLINE, event).await });
    event.expect("the fake's event within the deadline")
}
