//! What more than one SCV binary must agree on. No policy lives here.

pub mod client;
pub mod clock;
pub mod config;
pub mod fs;
pub mod installed;
pub mod layout;
pub mod link;
pub mod process;
pub mod protocol;
pub mod redact;
pub mod registry;
pub mod secret;
pub mod text;

/// The release of these binaries; the three of one installation must agree.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");
