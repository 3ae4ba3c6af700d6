//! Processes: who they are, how they start, how they end, and that none is left.
//!
//! A process is known by its [`Identity`], never by a pid alone. Everything that this process
//! started is waited by its own pid or handle ([`Family`]); nothing here waits for "any child",
//! since that steals exit statuses from the runtime. One program with its whole tree is a [`Run`].
//! What a process does while it lives is not looked at.

mod cgroup;
mod children;
mod end;
mod exit;
mod family;
mod identity;
mod limits;
mod orphans;
mod proc;
mod run;
mod sys;
mod tag;

use std::ffi::CString;
use std::io;

pub use cgroup::Cgroup;
pub use children::{children, count, tree};
pub use end::Ended;
pub use exit::Exit;
pub use family::Family;
pub use identity::Identity;
pub use orphans::{end_found, marked_orphans, tree_of};
pub use run::{End, Run, RunEnd, Start};
pub use rustix::process::Signal;
pub use tag::{DEPTH, Marks, PARENT, SESSION, Tag, fresh_handle};

/// How long a process may take to leave after SIGTERM (seed: "TERM, then KILL after 2 seconds").
pub const GRACE: std::time::Duration = std::time::Duration::from_secs(2);

/// Makes this process the parent of every descendant whose own parent dies.
pub fn become_subreaper() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Names the calling thread; on the main thread this is the process's name in `ps`.
///
/// The kernel keeps 15 bytes. A name that holds a NUL is ignored.
pub fn set_name(name: &str) {
    if let Ok(name) = CString::new(name) {
        // Fails for no name that is a C string; a process without its name works as well.
        let _ = rustix::thread::set_name(&name);
    }
}

#[cfg(test)]
mod tests;
