//! Room for journals: what cannot be written is not accepted.

use super::facts::Facts;
use super::finding::Finding;

const CHECK: &str = "disk";

/// Less than a few turns may write.
const FAIL_BYTES: u64 = 16 << 20;

/// A handful of full journals (`session.journal_max_bytes` is 16 MiB).
const WARN_BYTES: u64 = 256 << 20;

/// A session has a handful of files.
const WARN_FILES: u64 = 1000;

/// Looks at the file system of the home.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let home = facts.context.layout.home();
    match rustix::fs::statvfs(home) {
        Ok(room) => {
            let bytes = room.f_bavail.saturating_mul(room.f_frsize);
            // A file system without a fixed number of files says 0 of 0.
            let files = (room.f_files > 0).then_some(room.f_favail);
            vec![judge(bytes, files, &home.display().to_string())]
        }
        Err(error) => vec![Finding::warn(CHECK, format!("cannot tell how much room is left: {error}"), "run `df`")],
    }
}

fn judge(bytes: u64, files: Option<u64>, home: &str) -> Finding {
    let says = format!("{} MiB free", bytes >> 20);
    let make_room = || format!("make room on the file system of {home}");
    if bytes < FAIL_BYTES || files == Some(0) {
        return Finding::fail(CHECK, format!("{says}: prompts would be refused"), make_room());
    }
    if bytes < WARN_BYTES {
        return Finding::warn(CHECK, says, make_room());
    }
    match files.filter(|files| *files < WARN_FILES) {
        Some(files) => Finding::warn(CHECK, format!("{says}, and room for {files} files only"), make_room()),
        None => Finding::ok(CHECK, says),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn room_is_bytes_and_files() {
        let state = |bytes, files| judge(bytes, files, "/h").state;
        assert_eq!(state(1 << 30, None), State::Ok);
        assert_eq!(state(1 << 30, Some(100_000)), State::Ok);
        assert_eq!(state(1 << 30, Some(10)), State::Warn);
        assert_eq!(state(1 << 30, Some(0)), State::Fail);
        assert_eq!(state(100 << 20, None), State::Warn);
        assert_eq!(state(1 << 20, None), State::Fail);
    }
}
