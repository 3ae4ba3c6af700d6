//! What no safe function gives; the only unsafe code of the project.
#![allow(unsafe_code, reason = "registering a descriptor with the runtime, and one ioctl, have no safe form")]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use rustix::ioctl::{Updater, ioctl, opcode};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the runtime watch `fd` for what `interest` names.
pub(super) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and keeps its descriptor until it is dropped, and the
    // `AsyncFd` that owns it hands out no mutable access here that could replace it.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    Ok(watched?)
}

/// `struct pidfd_info` of linux/pidfd.h, in its first size.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    /// What is asked for, and what was told.
    mask: u64,
    cgroup: u64,
    /// Pids, users and groups.
    ids: [u32; 11],
    exit_code: i32,
}

const PIDFD_GET_INFO: rustix::ioctl::Opcode = opcode::read_write::<PidfdInfo>(0xff, 11);
const PIDFD_INFO_EXIT: u64 = 1 << 3;

/// How the process behind a descriptor ended. The kernel tells it to everybody who has one, once
/// the parent has collected the process (Linux 6.15); before that there is nothing to tell. Fails
/// where it will never be told.
pub(super) fn exit_status(pidfd: BorrowedFd<'_>) -> io::Result<Option<ExitStatus>> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the opcode carries the size of `PidfdInfo`, which has the layout that the kernel
    // reads and writes for this size; the value outlives the call.
    unsafe { ioctl(pidfd, Updater::<PIDFD_GET_INFO, _>::new(&mut info))? };
    Ok((info.mask & PIDFD_INFO_EXIT != 0).then(|| ExitStatus::from_raw(info.exit_code)))
}
