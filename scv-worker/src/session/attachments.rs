//! Files that come with a prompt, taken into the session before the prompt is answered.
//!
//! They are copied, not linked: what the model will see is what was sent, whatever becomes of the
//! original. That blocks for as long as a few copies take; their number and size are bounded.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use shared::layout::SessionDir;
use shared::protocol::client::Attachment;
use shared::protocol::limits;

/// Files of one prompt.
pub(crate) const MAX_FILES: usize = limits::ATTACHMENTS;

/// One file; the chats that we know take no more.
pub(crate) const MAX_BYTES: u64 = 25 << 20;

/// A name in the session: with the unique part before it far below the 255 bytes of Linux.
const NAME_BYTES: usize = 120;

/// Why a prompt's files were not taken. Nothing of them is left in the session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    /// More than [`MAX_FILES`].
    #[error("a prompt takes at most {MAX_FILES} attachments, not {0}")]
    TooMany(usize),
    /// The server's directory is not the client's.
    #[error("the attachment {0} has to be named by an absolute path")]
    Relative(PathBuf),
    /// A directory, FIFO, device, socket or symlink.
    #[error("the attachment {0} is no regular file")]
    NotRegular(PathBuf),
    /// More than [`MAX_BYTES`].
    #[error("the attachment {path} has {bytes} bytes; at most {MAX_BYTES} are taken")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// As far as they were counted.
        bytes: u64,
    },
    /// It is missing, or may not be read.
    #[error("cannot read the attachment {path}: {cause}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why; in the sentence, which is all that a client gets.
        cause: io::Error,
    },
    /// Disk full, for example.
    #[error("cannot keep the attachment {path}: {cause}")]
    Keep {
        /// The file.
        path: PathBuf,
        /// Why; in the sentence, which is all that a client gets.
        cause: io::Error,
    },
}

impl From<AttachError> for String {
    fn from(error: AttachError) -> Self {
        error.to_string()
    }
}

/// Copies `attachments` into the session, durably, and returns them with their new paths and true
/// sizes. All or none.
pub(crate) fn store(session: &SessionDir, attachments: &[Attachment]) -> Result<Vec<Attachment>, AttachError> {
    if attachments.len() > MAX_FILES {
        return Err(AttachError::TooMany(attachments.len()));
    }
    if attachments.is_empty() {
        return Ok(Vec::new());
    }
    let dir = session.attachments();
    let keep = |cause| AttachError::Keep { path: dir.clone(), cause };
    make(&dir).map_err(keep)?;
    let mut stored = Stored::default();
    for attachment in attachments {
        stored.add(&dir, attachment)?;
    }
    shared::fs::sync_dir(&dir).map_err(keep)?;
    Ok(stored.keep())
}

/// What was copied so far; removed again unless it is kept.
#[derive(Debug, Default)]
struct Stored(Vec<Attachment>);

impl Stored {
    fn add(&mut self, dir: &Path, attachment: &Attachment) -> Result<(), AttachError> {
        let path = attachment.path.clone();
        let source = open(&path)?;
        let keep = |cause| AttachError::Keep { path: path.clone(), cause };
        let (target, file) = create(dir, &name(attachment)).map_err(keep)?;
        // Known from here on, so that it goes again whatever happens next.
        self.0.push(Attachment { path: target, ..attachment.clone() });
        // One byte more than allowed tells that it has grown since it was looked at.
        let size = io::copy(&mut source.take(MAX_BYTES + 1), &mut &file).map_err(keep)?;
        if size > MAX_BYTES {
            return Err(AttachError::TooLarge { path, bytes: size });
        }
        file.sync_all().map_err(keep)?;
        if let Some(last) = self.0.last_mut() {
            last.size = size;
        }
        Ok(())
    }

    fn keep(mut self) -> Vec<Attachment> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        for attachment in &self.0 {
            // What cannot be removed goes with the session.
            let _ = shared::fs::remove(&attachment.path);
        }
    }
}

/// Opens a file of the client, checked by its handle; never waits for a FIFO's other end.
fn open(path: &Path) -> Result<File, AttachError> {
    if !path.is_absolute() {
        return Err(AttachError::Relative(path.to_owned()));
    }
    let read = |cause: io::Error| match Errno::from_io_error(&cause) {
        // `O_NOFOLLOW` met a symlink; a socket cannot be opened at all.
        Some(Errno::LOOP | Errno::NXIO) => AttachError::NotRegular(path.to_owned()),
        _ => AttachError::Read { path: path.to_owned(), cause },
    };
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path).map_err(read)?;
    let seen = file.metadata().map_err(read)?;
    if !seen.is_file() {
        return Err(AttachError::NotRegular(path.to_owned()));
    }
    if seen.len() > MAX_BYTES {
        return Err(AttachError::TooLarge { path: path.to_owned(), bytes: seen.len() });
    }
    Ok(file)
}

fn make(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    shared::fs::private_dir(dir)?;
    shared::fs::sync_dir(dir.parent().unwrap_or(Path::new("/")))
}

/// A new private file in `dir` whose name ends with `name`.
fn create(dir: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    // No two are the same, so `create_new` fails only where something is badly wrong.
    let path = dir.join(format!("{}-{name}", uuid::Uuid::now_v7().simple()));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    Ok((path, file))
}

/// Its name for people, else that of the file, made harmless: one component, no control
/// characters, no blanks or shell signs, not hidden, with its extension.
fn name(attachment: &Attachment) -> String {
    let given = attachment.name.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let given = given.map_or_else(|| attachment.path.to_string_lossy(), Into::into);
    let last = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let clean: String = last.chars().map(|c| if c.is_alphanumeric() || ".-_".contains(c) { c } else { '_' }).collect();
    let clean = clean.trim_start_matches('.');
    match clean.rsplit_once('.') {
        _ if clean.is_empty() => "file".to_owned(),
        Some((stem, extension)) if extension.len() < NAME_BYTES / 4 => {
            let stem = &stem[..shared::text::floor(stem, NAME_BYTES - extension.len() - 1)];
            format!("{stem}.{extension}")
        }
        _ => clean[..shared::text::floor(clean, NAME_BYTES)].to_owned(),
    }
}

#[cfg(test)]
mod tests;
