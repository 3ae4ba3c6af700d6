//! What is too large for a line of the journal: `sessions/<id>/blobs/<sha256>`.
//!
//! A blob is on the disk before the record that names it, never changes, and is checked when it is
//! read: what comes back is what was put in, or an error.

use std::io::{self, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use shared::fs::Sync;
use shared::layout::SessionDir;

use crate::sha256;

/// The largest blob: above everything that a turn can produce (a server frame has 8 MiB).
const MAX_BYTES: usize = 64 << 20;

/// Keeps `bytes` durably and returns their SHA-256, which names them. The same bytes are kept once.
pub(crate) fn store(session: &SessionDir, bytes: &[u8]) -> io::Result<String> {
    if bytes.len() > MAX_BYTES {
        return Err(too_large(bytes.len()));
    }
    let name = sha256::of(bytes);
    // One that is damaged is written again.
    if load(session, &name).is_err() {
        let dir = session.blobs();
        make(&dir)?;
        shared::fs::replace(&dir.join(&name), bytes, Sync::Durable)?;
    }
    Ok(name)
}

/// As [`store`] for what `write` writes, which need not be in memory.
pub(crate) fn store_by(
    session: &SessionDir,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<String> {
    let dir = session.blobs();
    make(&dir)?;
    let file = shared::fs::temporary(&dir)?;
    let mut hashing = Hashing { to: BufWriter::new(file), hash: Sha256::new(), len: 0 };
    write(&mut hashing)?;
    let Hashing { to, hash, .. } = hashing;
    let file = to.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.as_file().sync_all()?;
    let name = sha256::hex(hash);
    file.persist(dir.join(&name)).map_err(|failed| failed.error)?;
    shared::fs::sync_dir(&dir)?;
    Ok(name)
}

/// Counts and hashes what passes through.
struct Hashing<W> {
    to: W,
    hash: Sha256,
    len: usize,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.len += bytes.len();
        if self.len > MAX_BYTES {
            return Err(too_large(self.len));
        }
        self.to.write_all(bytes)?;
        self.hash.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The first bytes of a blob, at most `len`; unchecked.
pub(crate) fn start(session: &SessionDir, name: &str, len: usize) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    std::fs::File::open(path(session, name)?)?.take(len as u64).read_to_end(&mut start)?;
    Ok(start)
}

/// How large the blob is.
pub(crate) fn len(session: &SessionDir, name: &str) -> io::Result<u64> {
    Ok(std::fs::metadata(path(session, name)?)?.len())
}

/// Removes all blobs but those that `is_needed`, and what a crash left half written.
pub(crate) fn keep_only(session: &SessionDir, is_needed: impl Fn(&str) -> bool) {
    for blob in std::fs::read_dir(session.blobs()).into_iter().flatten().flatten() {
        if !blob.file_name().to_str().is_some_and(&is_needed)
            && let Err(error) = std::fs::remove_file(blob.path())
        {
            tracing::warn!(%error, "cannot remove a blob that no record names any more");
        }
    }
}

fn too_large(bytes: usize) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("{bytes} bytes are too many for a blob, {MAX_BYTES} are kept"))
}

/// The bytes that `name` names. Bytes that are not those ([`io::ErrorKind::InvalidData`]) are
/// never given back.
pub(crate) fn load(session: &SessionDir, name: &str) -> io::Result<Vec<u8>> {
    let bytes = shared::fs::read_bounded(&path(session, name)?, MAX_BYTES as u64)?;
    if sha256::of(&bytes) != name {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the blob {name} is damaged")));
    }
    Ok(bytes)
}

fn path(session: &SessionDir, name: &str) -> io::Result<PathBuf> {
    // A name comes from a file: it may not lead anywhere else.
    if !sha256::is_hash(name) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} names no blob")));
    }
    Ok(session.blobs().join(name))
}

fn make(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    shared::fs::private_dir(dir)?;
    shared::fs::sync_dir(dir.parent().unwrap_or(Path::new("/")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use shared::layout::Layout;

    use super::*;

    fn case() -> (tempfile::TempDir, SessionDir) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        let session = layout.session("01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap());
        std::fs::create_dir_all(session.path()).unwrap();
        (dir, session)
    }

    #[test]
    fn a_blob_comes_back_and_is_private_and_kept_once() {
        let (_dir, session) = case();
        let name = store(&session, b"\xff\0large").unwrap();
        assert_eq!(store(&session, b"\xff\0large").unwrap(), name);
        assert_eq!(load(&session, &name).unwrap(), b"\xff\0large");
        let file = session.blobs().join(name);
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(session.blobs()).unwrap().count(), 1);
    }

    #[test]
    fn a_blob_that_was_never_in_memory_has_the_same_name() {
        let (_dir, session) = case();
        let by =
            |text: &str| store_by(&session, |to| text.as_bytes().chunks(2).try_for_each(|part| to.write_all(part)));
        let name = by("a text").unwrap();
        assert_eq!(load(&session, &name).unwrap(), b"a text");
        assert_eq!((store(&session, b"a text").unwrap(), len(&session, &name).unwrap()), (name.clone(), 6));
        let other = by("another").unwrap();
        std::fs::write(session.blobs().join(".tmp-x"), "half").unwrap();
        keep_only(&session, |kept| kept == other);
        let left: Vec<_> = std::fs::read_dir(session.blobs()).unwrap().map(|blob| blob.unwrap().file_name()).collect();
        assert_eq!(left, [other.as_str()]);
        let error = store_by(&session, |to| (0..=64).try_for_each(|_| to.write_all(&vec![0; 1 << 20]))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(std::fs::read_dir(session.blobs()).unwrap().count(), 1, "nothing of it is left");
    }

    #[test]
    fn a_damaged_blob_is_never_given_back_and_is_mended_by_the_next_store() {
        let (_dir, session) = case();
        let name = store(&session, b"text").unwrap();
        std::fs::write(session.blobs().join(&name), b"tex").unwrap();
        assert_eq!(load(&session, &name).unwrap_err().kind(), io::ErrorKind::InvalidData);
        store(&session, b"text").unwrap();
        assert_eq!(load(&session, &name).unwrap(), b"text");
    }

    #[test]
    fn only_a_hash_names_a_blob() {
        let (_dir, session) = case();
        for name in ["", "../journal.jsonl", &"A".repeat(64), &"a".repeat(63)] {
            assert_eq!(load(&session, name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
        }
        assert_eq!(load(&session, &"a".repeat(64)).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_blob_over_the_limit_is_refused() {
        let (_dir, session) = case();
        let error = store(&session, &vec![0; MAX_BYTES + 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
