//! Why a workspace, or a path in one, cannot be used.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

/// Linux takes no longer path (`PATH_MAX`, limits.h; the NUL at the end counts).
pub(super) const PATH_BYTES: usize = 4095;

/// A workspace that a session cannot have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// `cwd` on the wire is absolute.
    #[error("the workspace {0} has to be an absolute path")]
    Relative(PathBuf),
    /// A file, a device.
    #[error("the workspace {0} is no directory")]
    NotDirectory(PathBuf),
    /// It is missing, or may not be entered.
    #[error("cannot open the workspace {path}")]
    Io {
        /// The workspace.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Why a path of a call cannot be used. The path is shown as the caller wrote it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PathError {
    /// Nothing there, or a NUL.
    #[error("the path has to name something in the workspace")]
    Unusable,
    /// More than Linux takes.
    #[error("the path has {0} bytes; Linux takes at most {PATH_BYTES}")]
    TooLong(usize),
    /// Files are named relative to the workspace.
    #[error("{path} is absolute; name it relative to the workspace{hint}")]
    Absolute {
        /// As it came.
        path: String,
        /// ` (src/a.rs)`, where it lies in the workspace.
        hint: String,
    },
    /// By `..`, or by a symlink.
    #[error("{0} leads outside the workspace")]
    Outside(String),
    /// No such file or directory.
    #[error("{0} does not exist in the workspace")]
    Missing(String),
    /// Where a file is needed.
    #[error("{0} is a directory; name a file in it")]
    Directory(String),
    /// Where a directory is needed.
    #[error("{0} is no directory")]
    NotDirectory(String),
    /// FIFO, socket, device, symlink.
    #[error("{path} is {kind}, not a regular file")]
    NotRegular {
        /// As it came.
        path: String,
        /// `a FIFO`, `a socket`.
        kind: &'static str,
    },
    /// The rest.
    #[error("cannot open {path}")]
    Io {
        /// As it came.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// Refuses what is no regular file, by its mode (stat(2)).
pub(super) fn regular(path: &Path, mode: u32) -> Result<(), PathError> {
    let path = || path.display().to_string();
    let kind = match FileType::from_raw_mode(mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => return Err(PathError::Directory(path())),
        FileType::Symlink => "a symlink",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    };
    Err(PathError::NotRegular { path: path(), kind })
}

/// What a failure at `path` means.
pub(super) fn explain(path: &Path, error: io::Error) -> PathError {
    let path =
        if path.as_os_str() == OsStr::new(".") { "the workspace".to_owned() } else { path.display().to_string() };
    match error.kind() {
        // cap-std's own refusal; one of the kernel carries its number.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => PathError::Outside(path),
        io::ErrorKind::NotFound => PathError::Missing(path),
        io::ErrorKind::IsADirectory => PathError::Directory(path),
        _ => PathError::Io { path, source: error },
    }
}
