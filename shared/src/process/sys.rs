//! What no safe function gives; the only unsafe code of the project.
#![allow(unsafe_code, reason = "registering a descriptor with the runtime has no safe form")]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the runtime watch `fd` for what `interest` names.
pub(super) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and keeps its descriptor until it is dropped, and the
    // `AsyncFd` that owns it hands out no mutable access here that could replace it.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    Ok(watched?)
}
