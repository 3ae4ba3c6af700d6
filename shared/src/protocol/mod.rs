//! The client protocol, version 3: newline-delimited JSON, one object a line.
//!
//! One type per direction: [`ClientMessage`] and [`ServerEvent`]. Reading is lenient (unknown
//! fields are ignored, unknown events, codes and states parse to `Unknown`), writing is strict.

pub mod client;
pub mod control;
pub mod error;
pub mod frame;
pub mod ids;
pub mod server;

pub use client::ClientMessage;
pub use error::ErrorCode;
pub use ids::SessionId;
pub use server::ServerEvent;

/// The protocol version that `initialize` names.
pub const PROTOCOL_VERSION: u32 = 3;

/// The features that a client may ask for in `initialize`, sorted: new events go only to
/// connections that did.
pub const FEATURES: [&str; 5] = ["approvals", "attach", "jobs", "notices", "watch"];

/// Limits of the wire. Each has a test that goes over it.
pub mod limits {
    use std::time::Duration;

    /// A client's frame without its newline.
    pub const CLIENT_FRAME_BYTES: usize = 1 << 20;
    /// All unfinished lines inside scvd together.
    pub const UNFINISHED_BYTES: usize = 8 << 20;
    /// A connection that has not said `initialize` by then is closed.
    pub const INITIALIZE_WITHIN: Duration = Duration::from_secs(10);
    /// A server's frame without its newline.
    pub const SERVER_FRAME_BYTES: usize = 8 << 20;
    /// A prompt's text.
    pub const PROMPT_BYTES: usize = 256 << 10;
    /// The reason of a denied approval.
    pub const REASON_BYTES: usize = 200;
    /// Attachments of one prompt.
    pub const ATTACHMENTS: usize = 16;
    /// Frames waiting for one connection.
    pub const OUTBOUND_FRAMES: usize = 256;
    /// Bytes waiting for one connection.
    pub const OUTBOUND_BYTES: usize = 16 << 20;
    /// Prompts waiting in one session's queue.
    pub const QUEUED_PROMPTS: usize = 64;
    /// One server-sent event of a provider.
    pub const SSE_EVENT_BYTES: usize = 1 << 20;
    /// Text and arguments of one response together.
    pub const RESPONSE_BYTES: usize = 4 << 20;
    /// Assistant text of one response.
    pub const ASSISTANT_BYTES: usize = 1 << 20;
    /// One line of `tool.progress`.
    pub const PROGRESS_LINE_BYTES: usize = 200;
    /// The text of one `tool.progress`.
    pub const PROGRESS_BYTES: usize = 512;
    /// At most one `tool.progress` of a call in this time.
    pub const PROGRESS_EVERY: Duration = Duration::from_millis(500);
}

#[cfg(test)]
mod tests;
