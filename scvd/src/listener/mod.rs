//! The socket: binding it, accepting, the handshake, and handing connections over to workers.
//!
//! A connection is read here until it names a session; from then on scvd is out of its path.

mod accept;
mod bind;
mod connection;
mod handover;
mod handshake;
mod load;
mod resume;

pub(crate) use accept::accept_forever;
pub(crate) use bind::{BindError, Door, inherited};
pub(crate) use load::{Connections, is_idle};
pub(crate) use resume::resume;
