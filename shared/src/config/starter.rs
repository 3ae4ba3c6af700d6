//! The commented file that `scv config init` writes.

use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::fs;
use crate::layout::Layout;

/// The file's text: the keys that most people want, each with its default.
pub const STARTER: &str = include_str!("starter.toml");

/// Writes the starter (mode 0600) and returns its path.
///
/// Fails with `AlreadyExists` if there is a configuration: it is never replaced.
pub fn write_starter(layout: &Layout) -> io::Result<PathBuf> {
    let path = layout.config();
    let mode = std::fs::Permissions::from_mode(0o600);
    let mut file = tempfile::Builder::new().prefix(".tmp-").permissions(mode).tempfile_in(layout.home())?;
    file.write_all(STARTER.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(&path).map_err(|failed| failed.error)?;
    fs::sync_dir(layout.home())?;
    Ok(path)
}
