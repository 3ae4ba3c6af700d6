//! The workspace of a session: the directory that its file tools may reach into.
//!
//! Files are opened beneath a directory handle (`openat2` with `RESOLVE_BENEATH`, or cap-std's
//! own walk where the kernel has none), so neither `..`, an absolute path, a symlink, nor one
//! that is swapped in at the last moment leads outside. What a program does that a tool starts is
//! not contained here: `bash` and agents see the whole machine.
//!
//! The calls block, on the runtime's thread: all are on regular files, opened so that a FIFO or a
//! device cannot hold them up, and what is read and written in one go is bounded by the tools. A
//! network file system whose server is gone is the exception; it stops its own session only.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use rustix::fs::{Mode, OFlags};

use self::error::{PATH_BYTES, explain, regular};
use crate::secret_like::secret_like;

mod error;

pub(crate) use self::error::{OpenError, PathError};

/// The directory of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workspace {
    /// Canonical.
    root: PathBuf,
}

impl Workspace {
    /// The workspace at `path`, an existing directory, absolute. Symlinks on the way to it are
    /// followed once, here.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        if !path.is_absolute() {
            return Err(OpenError::Relative(path.to_owned()));
        }
        let root = path.canonicalize().map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        if !root.is_dir() {
            return Err(OpenError::NotDirectory(root));
        }
        let workspace = Self { root };
        // Entering it may still be forbidden; better said at the start than at the first call.
        workspace.dir().map_err(|source| OpenError::Io { path: workspace.root.clone(), source })?;
        Ok(workspace)
    }

    /// Its canonical path.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Opens the root anew for each call: a workspace that was moved away and made again is the
    /// new one, as it is for `bash`, and an idle session keeps no file system busy.
    fn dir(&self) -> io::Result<Dir> {
        Dir::open_ambient_dir(&self.root, ambient_authority())
    }

    /// Checks what can be told from the text alone.
    pub(crate) fn check<'a>(&self, path: &'a str) -> Result<&'a Path, PathError> {
        if path.trim().is_empty() || path.contains('\0') {
            return Err(PathError::Unusable);
        }
        if path.len() > PATH_BYTES {
            return Err(PathError::TooLong(path.len()));
        }
        let checked = Path::new(path);
        if checked.is_absolute() {
            let hint = match checked.strip_prefix(&self.root) {
                Ok(inside) if inside.as_os_str().is_empty() => String::new(),
                Ok(inside) => format!(" ({})", inside.display()),
                Err(_) => format!(" {}", self.root.display()),
            };
            return Err(PathError::Absolute { path: path.to_owned(), hint });
        }
        if checked.components().next() == Some(Component::ParentDir) {
            return Err(PathError::Outside(path.to_owned()));
        }
        Ok(checked)
    }

    /// Where `path` leads now, relative to the root, all symlinks followed.
    fn real(&self, path: &Path) -> Result<PathBuf, PathError> {
        self.dir().and_then(|dir| dir.canonicalize(path)).map_err(|error| explain(path, error))
    }

    /// Whether `path` has a secret-like name, or leads to something that has: a symlink does not
    /// hide it.
    pub(crate) fn is_secret_like(&self, path: &Path) -> bool {
        secret_like(path) || self.real(path).is_ok_and(|real| secret_like(&real))
    }

    /// Opens a regular file for reading. Symlinks that stay in the workspace are followed.
    pub(crate) fn open_file(&self, path: &Path) -> Result<File, PathError> {
        let dir = self.dir().map_err(|error| explain(path, error))?;
        // Looked at before it is opened: opening a FIFO or a device is an event for its other end.
        let seen = dir.metadata(path).map_err(|error| explain(path, error))?;
        regular(path, seen.mode())?;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
        let file = dir.open_with(path, &options).map_err(|error| explain(path, error))?.into_std();
        // And again by its handle: the path may have been changed in between.
        let opened = file.metadata().map_err(|error| explain(path, error))?;
        regular(path, opened.mode())?;
        Ok(file)
    }

    /// The directory that holds the last component of `path`. Missing directories are made if
    /// `parents` says so, each one durable.
    pub(crate) fn place(&self, path: &Path, parents: Parents) -> Result<Place, PathError> {
        let shown = path.display().to_string();
        let name = match path.components().next_back() {
            Some(Component::Normal(name)) if !names_a_directory(path) => name.to_owned(),
            _ => return Err(PathError::Directory(shown)),
        };
        let root = self.dir().map_err(|error| explain(path, error))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let opened = match root.open_dir(parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && parents == Parents::Make => {
                make_all(&root, parent).and_then(|()| root.open_dir(parent))
            }
            other => other,
        };
        let dir = opened.map_err(|error| explain(parent, error))?;
        Ok(Place { dir, name, shown })
    }

    /// The directory that an agent is to run in: relative or absolute, existing, and after all
    /// symlinks in the workspace. Returns its canonical path.
    ///
    /// This steers an agent and does not confine it: what it starts may go anywhere.
    pub(crate) fn resolve_dir(&self, path: &str) -> Result<PathBuf, PathError> {
        if path.trim().is_empty() || path.contains('\0') {
            return Err(PathError::Unusable);
        }
        let asked = Path::new(path);
        let real = self.root.join(asked).canonicalize().map_err(|error| explain(asked, error))?;
        if !real.starts_with(&self.root) {
            return Err(PathError::Outside(path.to_owned()));
        }
        if !real.is_dir() {
            return Err(PathError::NotDirectory(path.to_owned()));
        }
        Ok(real)
    }
}

/// What happens to directories that are missing on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parents {
    /// They are made.
    Make,
    /// They have to be there.
    Need,
}

/// A name in an open directory. Whatever becomes of the path that led here, the directory stays
/// the one that was opened beneath the workspace.
#[derive(Debug)]
pub(crate) struct Place {
    /// The directory.
    pub dir: Dir,
    /// One component.
    pub name: std::ffi::OsString,
    shown: String,
}

impl Place {
    /// What is there now; a symlink is not followed.
    pub(crate) fn look(&self) -> Result<Option<Metadata>, PathError> {
        match self.dir.symlink_metadata(&self.name) {
            Ok(seen) => Ok(Some(seen)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(explain(Path::new(&self.shown), error)),
        }
    }

    /// What is there now, if it is a regular file; a symlink is none.
    pub(crate) fn look_at_file(&self) -> Result<Option<Metadata>, PathError> {
        let seen = self.look()?;
        if let Some(seen) = &seen {
            regular(Path::new(&self.shown), seen.mode())?;
        }
        Ok(seen)
    }

    /// Opens the regular file that is there for reading.
    pub(crate) fn open_file(&self) -> Result<File, PathError> {
        let path = Path::new(&self.shown);
        // One component without following it: nothing to escape by, and cap-std has no such flag.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, &self.name, flags, Mode::empty())
            .map_err(|error| explain(path, error.into()))?;
        let file = File::from(file);
        let opened = file.metadata().map_err(|error| explain(path, error))?;
        regular(path, opened.mode())?;
        Ok(file)
    }
}

/// Makes durable what was created, renamed or removed in `dir`.
pub(crate) fn sync_dir(dir: &Dir) -> io::Result<()> {
    // The handle of a capability is often `O_PATH`, which cannot be synced.
    match dir.open(".").and_then(|dir| dir.sync_all()) {
        // Some file systems have no sync for directories (FUSE, 9p).
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

fn make_all(root: &Dir, path: &Path) -> io::Result<()> {
    let mut made = PathBuf::new();
    for part in path.components() {
        let above = root.open_dir(if made.as_os_str().is_empty() { Path::new(".") } else { &made })?;
        made.push(part);
        match root.create_dir(&made) {
            Ok(()) => sync_dir(&above)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// `a/` and `a/.`, which [`Path`] takes for `a`.
fn names_a_directory(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
}

#[cfg(test)]
mod tests;
