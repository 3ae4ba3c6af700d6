//! Sockets at any path: `sun_path` has 108 bytes, a path through a directory descriptor is short.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A socket's address. Keep it until the socket is bound or connected.
#[derive(Debug)]
pub struct SocketAddress {
    _dir: File,
    path: PathBuf,
}

impl SocketAddress {
    /// The address of the socket at `path`, whose directory has to exist.
    pub fn of(path: &Path) -> io::Result<Self> {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
        let dir = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(dir)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
        Ok(Self { _dir: dir, path })
    }

    /// The path to bind or to connect to.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
