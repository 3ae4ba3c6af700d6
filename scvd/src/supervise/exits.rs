//! How a worker ended that is no child of ours.
//!
//! The kernel says so, or the worker's own record, or nobody: a success is never made up.

use std::io;

use shared::fs;
use shared::layout::Layout;
use shared::process::{Exit, Identity};

/// The record of a worker's end is a line.
const MAX_BYTES: u64 = 4096;

/// Waits for the end of an adopted worker.
pub(super) async fn of_adopted(layout: &Layout, id: &str, identity: &Identity) -> io::Result<Exit> {
    let told = identity.exit().await?;
    Ok(first_known(told, recorded(layout, id)))
}

/// How a worker says that it ended; unknown if it does not.
pub(super) fn recorded(layout: &Layout, id: &str) -> Exit {
    let record = fs::read_bounded(&layout.worker(id).exit(), MAX_BYTES).ok();
    record.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default()
}

/// One that wrote its record may have been killed right after it: the kernel knows better.
fn first_known(told: Exit, recorded: Exit) -> Exit {
    if told == Exit::default() { recorded } else { told }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: Exit = Exit { code: None, signal: Some(9) };
    const DONE: Exit = Exit { code: Some(0), signal: None };
    const UNKNOWN: Exit = Exit { code: None, signal: None };

    #[test]
    fn the_kernel_comes_before_the_workers_own_record_and_nothing_is_made_up() {
        assert_eq!(first_known(KILLED, DONE), KILLED);
        assert_eq!(first_known(UNKNOWN, DONE), DONE);
        assert_eq!(first_known(UNKNOWN, UNKNOWN), UNKNOWN);
    }

    #[test]
    fn a_record_that_is_missing_or_damaged_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        let record = layout.worker("0123456789ab").exit();
        assert_eq!(recorded(&layout, "0123456789ab"), UNKNOWN);
        std::fs::create_dir_all(record.parent().unwrap()).unwrap();
        for (text, exit) in [(r#"{"code": 0, "why": "closed"}"#, DONE), (r#"{"code": "#, UNKNOWN), ("", UNKNOWN)] {
            std::fs::write(&record, text).unwrap();
            assert_eq!(recorded(&layout, "0123456789ab"), exit, "{text}");
        }
    }
}
