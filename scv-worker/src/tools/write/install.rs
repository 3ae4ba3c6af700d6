//! A new content on its way to its name: a temporary file in the directory of the target.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;

use cap_std::fs::{Dir, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use rustix::fs::{AtFlags, Gid, Mode, RenameFlags, Uid};
use rustix::io::Errno;

/// What a new file is made with; the umask takes its part.
const NEW_FILE_MODE: u32 = 0o666;

/// Nobody else may look at the content of a file that may be secret.
const PRIVATE_MODE: u32 = 0o600;

/// Read, write, execute. Set-user-id and its like are dropped, as the kernel does it on any write.
const KEPT_MODE: u32 = 0o777;

/// A complete, durable content under a temporary name. Dropped without being installed, it is gone.
#[derive(Debug)]
pub(super) struct Temporary<'a> {
    dir: &'a Dir,
    name: String,
}

impl<'a> Temporary<'a> {
    /// Writes `content` into `dir`, with owner and mode of the file that it will replace, if any.
    pub(super) fn write(dir: &'a Dir, content: &[u8], old: Option<&Metadata>) -> io::Result<Self> {
        let name = format!(".scv-{}.tmp", uuid::Uuid::now_v7().simple());
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(if old.is_some() { PRIVATE_MODE } else { NEW_FILE_MODE });
        let mut file = dir.open_with(&name, &options)?.into_std();
        // From here on it is removed on every way out.
        let temporary = Self { dir, name };
        file.write_all(content)?;
        if let Some(old) = old {
            take_after(&file, old)?;
        }
        file.sync_all()?;
        Ok(temporary)
    }

    /// Gives it `name`, which has to be free: nothing is ever overwritten.
    pub(super) fn install_new(self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::renameat_with(self.dir, &self.name, self.dir, name, RenameFlags::NOREPLACE) {
            Ok(()) => {
                std::mem::forget(self);
                Ok(())
            }
            // The file system does not know the flag (NFS, some FUSE ones).
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => self.link(name),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Self::install_new`], by a second name; the temporary one goes with the value.
    fn link(self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::linkat(self.dir, &self.name, self.dir, name, AtFlags::empty())?)
    }

    /// Gives it `name` and takes that from whatever has it.
    pub(super) fn install_over(self, name: &OsStr) -> io::Result<()> {
        rustix::fs::renameat(self.dir, &self.name, self.dir, name)?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // Nothing to be done if that fails: the directory may be gone.
        let _ = self.dir.remove_file(&self.name);
    }
}

fn take_after(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        // Only root may give files away; for anybody else the file becomes theirs.
        let _ = rustix::fs::fchown(file, Some(Uid::from_raw(old.uid())), Some(Gid::from_raw(old.gid())));
    }
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(old.mode() & KEPT_MODE))?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cap_std::ambient_authority;

    use super::*;

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_new_name_is_never_taken_from_anybody() {
        let path = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(path.path(), ambient_authority()).unwrap();
        std::fs::write(path.path().join("taken"), "old").unwrap();
        for install in [Temporary::install_new, Temporary::link] {
            let temporary = Temporary::write(&dir, b"new", None).unwrap();
            let error = install(temporary, OsStr::new("taken")).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            let temporary = Temporary::write(&dir, b"new", None).unwrap();
            install(temporary, OsStr::new("free")).unwrap();
            assert_eq!(std::fs::read_to_string(path.path().join("free")).unwrap(), "new");
            assert_eq!(names(path.path()), ["free", "taken"]);
            std::fs::remove_file(path.path().join("free")).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path.path().join("taken")).unwrap(), "old");
    }

    #[test]
    fn a_content_that_is_not_installed_leaves_nothing() {
        let path = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(path.path(), ambient_authority()).unwrap();
        std::fs::create_dir(path.path().join("d")).unwrap();
        drop(Temporary::write(&dir, b"new", None).unwrap());
        assert!(Temporary::write(&dir, b"new", None).unwrap().install_over(OsStr::new("d")).is_err());
        assert_eq!(names(path.path()), ["d"]);
    }
}
