//! Hidden roles for `scv demo`: a scripted model on loopback, and a small agent program.
//!
//! Neither is known to the rest of the worker: the model is reached through the real provider
//! client, the agent is started as an adapter's command.

pub(crate) mod agent;
pub(crate) mod model;
mod script;
