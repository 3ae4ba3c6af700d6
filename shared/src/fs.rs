//! Private files, written so that a crash at any byte leaves the old file or the new one.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// When a write has to be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Before the call returns: file, then directory.
    Durable,
    /// Whenever the kernel writes it: for what a later durable write makes good.
    Lazy,
}

/// Makes `path` and its missing parents, mode 0700.
pub fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Replaces `path` (mode 0600) by way of a temporary file in its directory and a rename.
pub fn replace(path: &Path, content: &[u8], sync: Sync) -> io::Result<()> {
    let (dir, file) = beside(path, content, sync)?;
    file.persist(path).map_err(|failed| failed.error)?;
    settle(dir, sync)
}

/// As [`replace`], durable, by what `write` writes, and gives the new file back, open for reading and
/// writing at its end. Once the rename has happened this does not fail: whoever goes on with the old file
/// would write into one that nobody finds. Call [`sync_dir`] then.
pub fn replace_by(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<File> {
    let mut file = temporary(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
    write(file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|failed| failed.error)
}

/// A private file in `dir` that goes away unless it is given a name there.
pub fn temporary(dir: &Path) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new().prefix(".tmp-").permissions(std::fs::Permissions::from_mode(0o600)).tempfile_in(dir)
}

/// Makes `path` (mode 0600) with its whole content at once; fails with `AlreadyExists` if it is
/// there, whoever else is making it.
pub fn create(path: &Path, content: &[u8], sync: Sync) -> io::Result<()> {
    let (dir, file) = beside(path, content, sync)?;
    file.persist_noclobber(path).map_err(|failed| failed.error)?;
    settle(dir, sync)
}

fn beside<'a>(path: &'a Path, content: &[u8], sync: Sync) -> io::Result<(&'a Path, tempfile::NamedTempFile)> {
    let dir = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut file = temporary(dir)?;
    file.write_all(content)?;
    if sync == Sync::Durable {
        file.as_file().sync_all()?;
    }
    Ok((dir, file))
}

fn settle(dir: &Path, sync: Sync) -> io::Result<()> {
    match sync {
        Sync::Durable => sync_dir(dir),
        Sync::Lazy => Ok(()),
    }
}

/// Makes what was created, renamed or removed in `dir` durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Removes `path`; that it is not there is no failure.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Reads a regular file of at most `max_bytes`. A larger one is an error, and so is anything
/// that is no regular file: opening never blocks on a FIFO.
pub fn read_bounded(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let file =
        OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut content = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut content)?;
    if content.len() as u64 > max_bytes {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {max_bytes} bytes")));
    }
    Ok(content)
}

/// An exclusive lock that the kernel drops with the file, whatever happens to us.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Takes the lock on `path` (made if missing, mode 0600); `None` if somebody has it.
    pub fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// A lock that came with its open file from the process that took it.
    pub fn inherited(file: File) -> Self {
        Self(file)
    }

    /// The locked file.
    pub fn file(&self) -> &File {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_private_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        replace(&path, b"one", Sync::Durable).unwrap();
        replace(&path, b"two", Sync::Lazy).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_is_created_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        create(&path, b"one", Sync::Lazy).unwrap();
        assert_eq!(create(&path, b"two", Sync::Lazy).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_lock_is_held_once_and_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = Lock::try_acquire(&path).unwrap();
        assert!(held.is_some());
        assert!(Lock::try_acquire(&path).unwrap().is_none());
        drop(held);
        assert!(Lock::try_acquire(&path).unwrap().is_some());
    }

    #[test]
    fn reading_a_fifo_fails_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(read_bounded(&path, 10).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_file_over_the_bound_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, b"12345").unwrap();
        assert_eq!(read_bounded(&path, 5).unwrap(), b"12345");
        assert_eq!(read_bounded(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
