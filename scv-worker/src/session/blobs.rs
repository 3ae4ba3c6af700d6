//! What is too large for a line of the journal: `sessions/<id>/blobs/<sha256>`.
//!
//! A blob is on the disk before the record that names it, never changes, and is checked when it is
//! read: what comes back is what was put in, or an error.

use std::io;
use std::path::{Path, PathBuf};

use shared::fs::Sync;
use shared::layout::SessionDir;

use crate::sha256;

/// The largest blob: above everything that a turn can produce (a server frame has 8 MiB).
const MAX_BYTES: usize = 64 << 20;

/// Keeps `bytes` durably and returns their SHA-256, which names them. The same bytes are kept once.
pub(crate) fn store(session: &SessionDir, bytes: &[u8]) -> io::Result<String> {
    if bytes.len() > MAX_BYTES {
        let too_large = format!("{} bytes are too many for a blob, {MAX_BYTES} are kept", bytes.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, too_large));
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
