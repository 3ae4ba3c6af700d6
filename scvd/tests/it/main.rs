//! scvd with workers that have no session in them: what it promises about processes,
//! descriptors and its socket.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic, also in its helpers")]

mod home;

mod boot;
mod clients;
mod handover;
mod limits;
mod skew;
mod workers;
