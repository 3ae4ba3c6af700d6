//! Where the supervisor's diagnostics go: stderr, which a detached one has in `state/scvd.log`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use shared::fs::{self, Sync};
use shared::layout::Layout;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// A log over this is moved to `scvd.log.1`, so both together stay near twice that.
const MAX_LOG_BYTES: u64 = 1 << 20;

/// Starts logging to stderr, at `info` unless `filter` (`SCV_LOG`) says something else.
pub(crate) fn start(filter: Option<&str>) {
    let info = || Targets::new().with_default(tracing::Level::INFO);
    let filter: Targets = filter.filter(|filter| !filter.is_empty()).and_then(|f| f.parse().ok()).unwrap_or_else(info);
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(io::stderr);
    // They would go to stderr, which is what failed: on a full disk `eprintln!` panics.
    let lines = lines.log_internal_errors(false);
    tracing_subscriber::registry().with(lines).with(filter).init();
}

/// The log, for appending; made if it is missing.
pub(crate) fn open(layout: &Layout) -> io::Result<File> {
    fs::private_dir(&layout.state())?;
    OpenOptions::new().append(true).create(true).mode(0o600).open(layout.log())
}

/// Moves the end of a log that is too long to `scvd.log.1` and empties it.
///
/// It is copied and cut, not renamed: workers that live on have it open.
pub(crate) fn rotate(layout: &Layout) -> io::Result<()> {
    let mut log = match OpenOptions::new().read(true).write(true).open(layout.log()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let len = log.metadata()?.size();
    if len <= MAX_LOG_BYTES {
        return Ok(());
    }
    log.seek(SeekFrom::Start(len - MAX_LOG_BYTES))?;
    let mut end = Vec::new();
    (&mut log).take(MAX_LOG_BYTES).read_to_end(&mut end)?;
    fs::replace(&older(layout), &end, Sync::Lazy)?;
    log.set_len(0)
}

fn older(layout: &Layout) -> PathBuf {
    layout.log().with_extension("log.1")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_long_log_leaves_its_end_in_the_older_file_and_goes_on_for_whoever_has_it_open() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        let mut log = open(&layout).unwrap();
        log.write_all(&vec![b'a'; 1 << 20]).unwrap();
        rotate(&layout).unwrap();
        assert!(!older(&layout).exists());
        log.write_all(b"end").unwrap();
        rotate(&layout).unwrap();
        log.write_all(b"next").unwrap();
        assert_eq!(std::fs::read(layout.log()).unwrap(), b"next");
        let old = std::fs::read(older(&layout)).unwrap();
        assert_eq!((old.len(), &old[old.len() - 3..]), (1 << 20, &b"end"[..]));
    }
}
