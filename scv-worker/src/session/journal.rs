//! The append-only file of a session.
//!
//! One `write` for each batch of records, so that a crash leaves whole lines and at most one torn
//! one at the end, which is cut before anything is appended. What could not be written whole is
//! taken back: it was not acknowledged, and no later record is glued to a fragment.

mod compaction;

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use shared::layout::SessionDir;

use super::blobs;
use super::record::Record;

/// A line of the journal; a larger record becomes a blob.
pub(crate) const MAX_RECORD_BYTES: usize = 1 << 20;

/// The journal, open for appending by the session's owner.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: SessionDir,
    file: File,
    /// The end of the last whole record.
    len: u64,
    /// Where the newest snapshot begins; 0 without one.
    snapshot: u64,
    /// A failed append left bytes behind `len` that could not be cut yet.
    dirty: bool,
    /// Grows when the file is replaced: offsets of an older generation mean nothing.
    generation: u64,
}

/// What loading found beside records.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// Bytes of a torn last line that were cut.
    pub torn_bytes: u64,
    /// Whole lines that are no records of this release; they are kept in the file.
    pub unreadable_lines: u64,
}

impl Journal {
    /// Opens the journal of `dir`, or makes an empty one, and cuts a torn last line. `each` gets the
    /// records from the newest snapshot on, in order; never more than one of them is in memory.
    pub(crate) fn open(dir: &SessionDir, mut each: impl FnMut(Record)) -> io::Result<(Self, Loaded)> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(dir.journal())?;
        let mut loaded = Loaded::default();
        let mut len = 0;
        let mut snapshot = 0;
        let mut reader = BufReader::with_capacity(64 << 10, &file);
        loop {
            let line = Line::read(&mut reader)?;
            if !line.is_whole {
                loaded.torn_bytes = line.len;
                break;
            }
            if is_snapshot(dir, &line.start) {
                snapshot = len;
            }
            len += line.len;
        }
        let mut journal = Self { dir: dir.clone(), file, len, snapshot, dirty: loaded.torn_bytes > 0, generation: 0 };
        journal.mend()?;
        // A snapshot stands for all that was before it.
        let mut offset = snapshot;
        while offset < len {
            let line = journal.line_at(offset)?;
            offset += line.len;
            match parse(dir, &line.start) {
                Some(record) => each(record),
                None => loaded.unreadable_lines += 1,
            }
        }
        Ok((journal, loaded))
    }

    /// Appends `records` with one write. On failure none of them is in the journal.
    pub(crate) fn append(&mut self, records: &[Record]) -> io::Result<()> {
        self.mend()?;
        let mut lines = Vec::new();
        for record in records {
            self.encode(record, &mut lines)?;
        }
        self.dirty = true;
        if let Err(error) = self.file.write_all(&lines) {
            // The cause is what the user needs to hear; the next append tries to mend again.
            let _ = self.mend();
            return Err(error);
        }
        self.dirty = false;
        self.len += lines.len() as u64;
        Ok(())
    }

    /// Makes what was appended durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Takes back everything after `len`, which an append had made the end.
    pub(crate) fn cut(&mut self, len: u64) {
        self.len = len;
        self.dirty = true;
        // What cannot be cut now is cut before the next append.
        let _ = self.mend();
    }

    /// Bytes of whole records.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes that a load has to read and apply.
    pub(crate) fn to_load(&self) -> u64 {
        self.len - self.snapshot
    }

    /// A cursor at the journal's start.
    pub(crate) fn start(&self) -> Cursor {
        Cursor { offset: 0, generation: self.generation }
    }

    /// The next record at `cursor`, which moves on; `None` at the end. A cursor of a replaced
    /// file starts again at the new one's beginning.
    pub(crate) fn read(&self, cursor: &mut Cursor) -> io::Result<Option<Record>> {
        if cursor.generation != self.generation {
            *cursor = self.start();
        }
        while cursor.offset < self.len {
            let line = self.line_at(cursor.offset)?;
            cursor.offset += line.len;
            if let Some(record) = parse(&self.dir, &line.start) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    fn line_at(&self, offset: u64) -> io::Result<Line> {
        let mut line = Line::default();
        let mut chunk = [0; 8 << 10];
        while !line.is_whole {
            let at = offset + line.len;
            let room = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX).min(chunk.len());
            let read = self.file.read_at(&mut chunk[..room], at)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            line.push(&chunk[..read]);
        }
        Ok(line)
    }

    fn encode(&self, record: &Record, lines: &mut Vec<u8>) -> io::Result<()> {
        let start = lines.len();
        serde_json::to_writer(&mut *lines, record)?;
        if lines.len() - start > MAX_RECORD_BYTES {
            let sha256 = blobs::store(&self.dir, &lines[start..])?;
            lines.truncate(start);
            serde_json::to_writer(&mut *lines, &Record::Blob { sha256 })?;
        }
        lines.push(b'\n');
        Ok(())
    }

    /// Cuts what a failed append, or a crash, left behind the last whole record.
    fn mend(&mut self) -> io::Result<()> {
        if self.dirty {
            self.file.set_len(self.len)?;
            self.file.seek(SeekFrom::End(0))?;
            self.dirty = false;
        }
        Ok(())
    }
}

pub(crate) use compaction::Kept;

/// A place in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    offset: u64,
    generation: u64,
}

/// A line as it is read. We write none over [`MAX_RECORD_BYTES`]; of one that somebody else made,
/// however long, only the start is kept, which is no record.
#[derive(Default)]
struct Line {
    start: Vec<u8>,
    len: u64,
    is_whole: bool,
}

impl Line {
    fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let mut line = Self::default();
        while !line.is_whole {
            let taken = match from.fill_buf()? {
                [] => break,
                bytes => line.push(bytes),
            };
            from.consume(taken);
        }
        Ok(line)
    }

    /// Takes what belongs to this line, and says how much that was.
    fn push(&mut self, bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        let room = (MAX_RECORD_BYTES + 1).saturating_sub(self.start.len());
        self.start.extend_from_slice(&bytes[..taken.min(room)]);
        self.len += taken as u64;
        self.is_whole = end.is_some();
        taken
    }
}

/// Whether a line holds a snapshot, here or in a blob. We write the kind of a record first.
fn is_snapshot(dir: &SessionDir, line: &[u8]) -> bool {
    const START: &[u8] = b"{\"record\":\"snapshot\"";
    if !line.starts_with(b"{\"record\":\"blob\"") {
        return line.starts_with(START);
    }
    match serde_json::from_slice(line) {
        Ok(Record::Blob { sha256 }) => blobs::start(dir, &sha256, START.len()).is_ok_and(|start| start == START),
        _ => false,
    }
}

fn parse(dir: &SessionDir, line: &[u8]) -> Option<Record> {
    match serde_json::from_slice(line).ok()? {
        Record::Blob { sha256 } => serde_json::from_slice(&load(dir, &sha256)?).ok(),
        record => Some(record),
    }
}

fn load(dir: &SessionDir, sha256: &str) -> Option<Vec<u8>> {
    blobs::load(dir, sha256).inspect_err(|error| tracing::error!(%error, "a record of the journal is lost")).ok()
}

#[cfg(test)]
mod tests;
