//! What is on disk about things that live: delegations, sessions.
//!
//! Records only. Whether what they speak of still lives is asked of the kernel, and what follows
//! from it is decided elsewhere.

mod delegations;
mod meta;
mod transcript;

pub use delegations::{Damaged, Delegation, Delegations, Draft, Listing, is_handle};
pub use meta::SessionMeta;
pub use transcript::{Entry, Transcript};
