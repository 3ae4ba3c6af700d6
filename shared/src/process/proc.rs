//! The few files of /proc that are read here, each bounded.

use std::fs::File;
use std::io::{self, Read as _};

/// What `/proc/<pid>/stat` says (proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// Field 2, without its parentheses; may hold blanks and parentheses itself.
    pub name: String,
    /// Field 3.
    pub state: u8,
    /// Field 4.
    pub parent: i32,
    /// Field 5.
    pub group: i32,
    /// Field 20.
    pub threads: u32,
    /// Field 22: clock ticks after boot.
    pub start: u64,
}

impl Stat {
    /// Reads it; fails with `NotFound` if there is no such process.
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        let line = read(&format!("/proc/{pid}/stat"), 4096)?;
        parse(&line).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat is odd")))
    }

    /// Whether it runs or could: a zombie has ended, whoever has not collected it yet. One whose
    /// main thread alone has left looks like a zombie with more than one thread.
    pub(super) fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x') || self.threads > 1
    }
}

fn parse(line: &[u8]) -> Option<Stat> {
    // The name is the only field that may hold a parenthesis, so the last one closes it.
    let open = line.iter().position(|byte| *byte == b'(')?;
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let name = String::from_utf8_lossy(line.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let threads = fields.nth(14)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    Some(Stat { name, state, parent, group, threads, start })
}

/// Reads at most `max_bytes` of `path`, in few large reads: a list of children that is read in
/// small pieces may miss one when another leaves in between. A process that is gone is `NotFound`.
pub(super) fn read(path: &str, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut content = Vec::new();
    let mut chunk = [0; 4096];
    while content.len() < max_bytes {
        let room = chunk.len().min(max_bytes - content.len());
        match file.read(&mut chunk[..room]) {
            Ok(0) => break,
            Ok(count) => content.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // ESRCH: it went between open and read.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                return Err(io::ErrorKind::NotFound.into());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(content)
}

/// The numbers among the names in `dir`: processes of /proc, threads of a task directory.
pub(super) fn numbers(dir: &str) -> io::Result<Vec<i32>> {
    let entries = std::fs::read_dir(dir)?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_blanks_and_parentheses() {
        let line = b"7 (a) (b c)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9\n";
        let stat = parse(line).unwrap();
        assert_eq!(stat, Stat { name: "a) (b c)".into(), state: b'S', parent: 1, group: 7, threads: 1, start: 4711 });
    }

    #[test]
    fn a_torn_line_is_refused() {
        assert_eq!(parse(b"7 (a) S 1 7"), None);
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b")7("), None);
    }

    #[test]
    fn a_read_stops_at_its_bound() {
        assert_eq!(read("/proc/self/stat", 3).unwrap().len(), 3);
    }
}
