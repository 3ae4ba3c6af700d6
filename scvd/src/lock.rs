//! One supervisor a home, by a kernel lock. The file also keeps how the last one ended.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use shared::fs;
use shared::layout::Layout;

/// What of the lock's file is read; ours has a few dozen bytes.
const MAX_BYTES: u64 = 4096;

/// The lock of a home. The first line of its file is the holder's pid; a second one, written at
/// the end, says why it ended.
#[derive(Debug)]
pub(crate) struct ServerLock {
    lock: fs::Lock,
    path: PathBuf,
    /// How the last supervisor ended, in a sentence; none for the first one.
    pub(crate) last_stop: Option<String>,
}

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// Another supervisor has it.
    #[error("another scvd ({holder}) serves this home: it holds {path}", path = path.display())]
    Held {
        /// `pid N`, as far as the file tells.
        holder: String,
        /// The lock.
        path: PathBuf,
    },
    /// The file cannot be used.
    #[error("cannot lock {path}", path = path.display())]
    Io {
        /// The lock.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl ServerLock {
    /// Takes the lock and writes our pid.
    pub(crate) fn acquire(layout: &Layout) -> Result<Self, LockError> {
        let path = layout.lock();
        let failed = |source| LockError::Io { path: path.clone(), source };
        let lock = take(layout)?;
        let mut before = String::new();
        // What is no text is not ours and tells nothing.
        let _ = lock.file().take(MAX_BYTES).read_to_string(&mut before);
        let taken = Self { lock, path: path.clone(), last_stop: last_stop(&before) };
        taken.reclaim().map_err(failed)?;
        Ok(taken)
    }

    /// Takes over a lock that another process shares with us, and writes our pid. The lock is that
    /// of the open file: it stays while one of both has it.
    pub(crate) fn inherit(layout: &Layout, file: OwnedFd, from: i32) -> Result<Self, LockError> {
        let path = layout.lock();
        let last_stop = Some(format!("scvd (pid {from}) was replaced by its successor (scv restart)"));
        let taken = Self { lock: fs::Lock::inherited(File::from(file)), path: path.clone(), last_stop };
        taken.reclaim().map_err(|source| LockError::Io { path: path.clone(), source })?;
        if taken.is_at_its_path() { Ok(taken) } else { Err(LockError::Io { path, source: ErrorKind::NotFound.into() }) }
    }

    /// Writes our pid, over that of a successor that came to nothing.
    pub(crate) fn reclaim(&self) -> std::io::Result<()> {
        self.write(&format!("{}\n", std::process::id()))
    }

    /// Whether whoever looks for the lock finds this one: the home was not removed or replaced.
    pub(crate) fn is_at_its_path(&self) -> bool {
        let file = |found: std::fs::Metadata| (found.dev(), found.ino());
        match (self.lock.file().metadata().map(file), std::fs::metadata(&self.path).map(file)) {
            (Ok(ours), Ok(found)) => ours == found,
            (_, Err(error)) => error.kind() != ErrorKind::NotFound,
            (Err(_), _) => true,
        }
    }

    /// Leaves word of why this supervisor ends.
    pub(crate) fn sign_off(&self, why: &str) {
        // A full disk must not keep us from ending.
        let _ = self.write(&format!("{}\n{why}\n", std::process::id()));
    }

    fn write(&self, content: &str) -> std::io::Result<()> {
        let mut file = self.lock.file();
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(content.as_bytes())
    }
}

impl AsFd for ServerLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lock.file().as_fd()
    }
}

/// The pid in the lock's file: of whoever holds it, or held it last.
pub(crate) fn last_holder(layout: &Layout) -> Option<i32> {
    let content = fs::read_bounded(&layout.lock(), MAX_BYTES).ok()?;
    String::from_utf8_lossy(&content).lines().next()?.trim().parse().ok()
}

/// Whether nobody has the lock; nothing is written.
pub(crate) fn look(layout: &Layout) -> Result<(), LockError> {
    if layout.state().is_dir() { take(layout).map(drop) } else { Ok(()) }
}

fn take(layout: &Layout) -> Result<fs::Lock, LockError> {
    let path = layout.lock();
    let failed = |source| LockError::Io { path: path.clone(), source };
    if let Some(lock) = fs::Lock::try_acquire(&path).map_err(failed)? {
        return Ok(lock);
    }
    let holder = fs::read_bounded(&path, MAX_BYTES).map_err(failed)?;
    Err(LockError::Held { holder: holder_of(&String::from_utf8_lossy(&holder)), path })
}

fn holder_of(content: &str) -> String {
    match content.lines().next().map(str::trim) {
        Some(pid) if pid.parse::<u32>().is_ok() => format!("pid {pid}"),
        _ => "pid unknown".into(),
    }
}

fn last_stop(content: &str) -> Option<String> {
    let mut lines = content.lines();
    let pid = lines.next()?.trim();
    Some(match lines.next() {
        Some(why) => why.to_owned(),
        None => format!("scvd (pid {pid}) died without a word"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_holds_it_and_the_next_how_the_first_ended() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        fs::private_dir(&layout.state()).unwrap();
        let me = std::process::id();

        let first = ServerLock::acquire(&layout).unwrap();
        assert_eq!(first.last_stop, None);
        let refused = ServerLock::acquire(&layout).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("another scvd (pid {me}) serves this home")), "{refused}");
        assert_eq!(look(&layout).unwrap_err().to_string(), refused);
        drop(first);
        look(&layout).unwrap();

        let second = ServerLock::acquire(&layout).unwrap();
        assert_eq!(second.last_stop, Some(format!("scvd (pid {me}) died without a word")));
        second.sign_off("stopped by a client");
        drop(second);
        assert_eq!(ServerLock::acquire(&layout).unwrap().last_stop.as_deref(), Some("stopped by a client"));
    }

    #[test]
    fn a_lock_knows_that_its_home_was_removed_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        fs::private_dir(&layout.state()).unwrap();
        let lock = ServerLock::acquire(&layout).unwrap();
        assert!(lock.is_at_its_path());
        std::fs::remove_dir_all(layout.state()).unwrap();
        assert!(!lock.is_at_its_path());
        fs::private_dir(&layout.state()).unwrap();
        let other = ServerLock::acquire(&layout).unwrap();
        assert!(other.is_at_its_path() && !lock.is_at_its_path());
    }

    #[test]
    fn a_file_without_a_pid_still_names_a_holder() {
        assert_eq!(holder_of(""), "pid unknown");
        assert_eq!(holder_of("12\nwhy\n"), "pid 12");
    }
}
