//! The older part of a long journal goes: what is left is its newest events and a snapshot.
//!
//! Line by line from the old file to the new one, so that it costs a session no memory, however long
//! its journal is. A death at any byte leaves the old journal or the new one.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;

use serde::{Deserialize, Serialize};
use shared::fs;

use super::super::blobs;
use super::super::record::Record;
use super::super::state::State;
use super::Journal;

/// What of the past stays readable for clients; the state has all that the session needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The newest events, at most so many.
    pub events: usize,
    /// And at most so many bytes of them, with what of them lies in blobs: a journal is shorter after a
    /// compaction than before.
    pub bytes: u64,
}

/// A line that stays.
struct Stays {
    offset: u64,
    len: u64,
    /// Of the line and its blob.
    weight: u64,
    blob: Option<String>,
}

/// As much of a line as it takes to know whether it stays.
#[derive(Deserialize)]
struct Head {
    record: String,
    sha256: Option<String>,
}

impl Head {
    fn is_event(&self) -> bool {
        self.record == "turn" || self.record == "session"
    }
}

/// What a line holds.
enum Line {
    Event,
    EventInBlob(String),
    Other,
}

/// [`Record::Snapshot`] of a state that is not ours to give away.
#[derive(Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Borrowed<'a> {
    Snapshot { state: &'a State },
}

impl Journal {
    /// Replaces the file by its newest events and a snapshot of `state`, durably. On failure nothing has
    /// changed.
    pub(crate) fn compact(&mut self, kept: Kept, state: &State) -> io::Result<()> {
        let stays = self.newest_events(kept)?;
        let snapshot = blobs::store_by(&self.dir, |to| Ok(serde_json::to_writer(to, &Borrowed::Snapshot { state })?))?;
        let mut last = serde_json::to_vec(&Record::Blob { sha256: snapshot.clone() })?;
        last.push(b'\n');
        let old = &self.file;
        let file = fs::replace_by(&self.dir.journal(), |new| {
            stays.iter().try_for_each(|line| copy(old, line.offset, line.len, new))?;
            new.write_all(&last)
        })?;
        self.file = file;
        self.snapshot = stays.iter().map(|line| line.len).sum();
        self.len = self.snapshot + last.len() as u64;
        self.dirty = false;
        self.generation += 1;
        fs::sync_dir(self.dir.path())?;
        // Only now: until here the old journal may have been the one that is found after a power cut.
        let mut needed: BTreeSet<String> = stays.into_iter().filter_map(|line| line.blob).collect();
        needed.insert(snapshot);
        blobs::keep_only(&self.dir, |name| needed.contains(name));
        Ok(())
    }

    fn newest_events(&self, kept: Kept) -> io::Result<VecDeque<Stays>> {
        let mut stays: VecDeque<Stays> = VecDeque::new();
        let mut weight = 0;
        let mut offset = 0;
        while offset < self.len {
            let line = self.line_at(offset)?;
            let blob = match self.kind(&line.start) {
                Line::Event => None,
                Line::EventInBlob(name) => Some(name),
                Line::Other => {
                    offset += line.len;
                    continue;
                }
            };
            let extra = blob.as_deref().map_or(Ok(0), |name| blobs::len(&self.dir, name)).unwrap_or(0);
            stays.push_back(Stays { offset, len: line.len, weight: line.len + extra, blob });
            weight += line.len + extra;
            while stays.len() > kept.events || weight > kept.bytes {
                weight -= stays.pop_front().map_or(weight, |line| line.weight);
            }
            offset += line.len;
        }
        Ok(stays)
    }

    fn kind(&self, line: &[u8]) -> Line {
        match serde_json::from_slice::<Head>(line) {
            Ok(head) if head.is_event() => Line::Event,
            Ok(Head { record, sha256: Some(name) }) if record == "blob" => {
                let head = super::load(&self.dir, &name).and_then(|blob| serde_json::from_slice::<Head>(&blob).ok());
                if head.is_some_and(|head| head.is_event()) { Line::EventInBlob(name) } else { Line::Other }
            }
            _ => Line::Other,
        }
    }
}

fn copy(from: &File, mut offset: u64, len: u64, to: &mut File) -> io::Result<()> {
    let end = offset + len;
    let mut chunk = [0; 8 << 10];
    while offset < end {
        let room = usize::try_from(end - offset).unwrap_or(usize::MAX).min(chunk.len());
        let read = from.read_at(&mut chunk[..room], offset)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_all(&chunk[..read])?;
        offset += read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
