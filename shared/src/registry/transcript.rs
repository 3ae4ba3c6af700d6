//! A session's journal, as far as people may read it: prompts, and events as clients were told
//! them. What only the session itself needs is passed over, as is what another release wrote.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};

use serde::Deserialize;

use crate::layout::SessionDir;
use crate::protocol::server::{SessionEvent, TurnEvent};

/// A longer line is no entry: a session writes at most 1 MiB a line, and its snapshots, which are
/// longer, are not for people.
const MAX_LINE_BYTES: u64 = 2 << 20;

/// Something that happened in a session.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Entry {
    /// A prompt was accepted.
    Prompt {
        /// When, in milliseconds since 1970.
        at: u64,
        /// The name of the client.
        submitter: String,
        /// What the user said.
        text: String,
    },
    /// An event of a turn.
    Turn {
        /// When, in milliseconds since 1970.
        at: u64,
        /// As told.
        event: TurnEvent,
    },
    /// An event outside a turn.
    Session {
        /// When, in milliseconds since 1970.
        at: u64,
        /// As told.
        event: SessionEvent,
    },
    /// Something else.
    #[serde(other)]
    Other,
}

/// The entries of a journal, oldest first. Reads one line at a time, and may read while the session
/// writes: a last line that has not ended is left out.
#[derive(Debug)]
pub struct Transcript {
    lines: BufReader<File>,
}

impl Transcript {
    /// Opens the journal of a session.
    pub fn open(dir: &SessionDir) -> io::Result<Self> {
        Ok(Self { lines: BufReader::new(File::open(dir.journal())?) })
    }

    fn entry(&mut self) -> io::Result<Option<Entry>> {
        loop {
            let mut line = Vec::new();
            let read = (&mut self.lines).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(None);
            }
            if !line.ends_with(b"\n") {
                if line.len() as u64 == MAX_LINE_BYTES {
                    self.skip_line()?;
                    continue;
                }
                return Ok(None);
            }
            match serde_json::from_slice(&line) {
                Ok(Entry::Other) | Err(_) => {}
                Ok(entry) => return Ok(Some(entry)),
            }
        }
    }

    /// Passes over the rest of a line, without holding it.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let buffer = self.lines.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let (used, done) = (end.map_or(buffer.len(), |end| end + 1), end.is_some() || buffer.is_empty());
            self.lines.consume(used);
            if done {
                return Ok(());
            }
        }
    }
}

impl Iterator for Transcript {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entry().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::protocol::SessionId;

    #[test]
    fn what_is_for_people_is_read_and_the_rest_is_passed_over() {
        let home = tempfile::tempdir().unwrap();
        let layout = Layout::open(home.path()).unwrap();
        let dir = layout.session(SessionId::new());
        std::fs::create_dir_all(dir.path()).unwrap();
        let long = format!("{{\"record\":\"snapshot\",\"state\":\"{}\"}}", "x".repeat(5 << 20));
        let lines = [
            r#"{"record":"ceiling","seq":4096}"#,
            long.as_str(),
            r#"{"record":"prompt","at":1,"queue_id":"q","request_id":"client:1:r","submitter":"scv-exec","text":"hi"}"#,
            "no JSON",
            r#"{"record":"from_the_future","x":1}"#,
            r#"{"record":"prompt","at":2,"submitter":"a","text":"torn"#,
        ];
        std::fs::write(dir.journal(), lines.join("\n")).unwrap();
        let entries: Vec<Entry> = Transcript::open(&dir).unwrap().map(Result::unwrap).collect();
        assert_eq!(entries, [Entry::Prompt { at: 1, submitter: "scv-exec".into(), text: "hi".into() }]);
    }
}
