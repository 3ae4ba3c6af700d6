//! Records of running delegations: `state/delegations/<handle>.json`.
//!
//! A record is durable before its run starts and goes when nothing of the run is left, so what a
//! crash leaves behind is known by name.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::fs::{self, Sync};
use crate::layout::Layout;
use crate::process::{self, Identity};
use crate::protocol::control::DelegationEntry;

/// A record has well under 2 KiB, and a path at most 4 KiB.
const RECORD_BYTES: u64 = 64 << 10;
/// Chances that a random handle is taken are 1 in 2^24 a record; this many misses mean a fault.
const ATTEMPTS: usize = 16;

/// One delegation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegation {
    /// `<agent>-<6 hex>`, unique in the home.
    pub handle: String,
    /// The agent.
    pub agent: String,
    /// The session that called it.
    pub session: String,
    /// Where it works.
    pub cwd: PathBuf,
    /// How deep it is delegated.
    pub depth: u32,
    /// Its leader; not known before it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Identity>,
    /// The SCV process that owns it.
    pub owner: Identity,
    /// When it was reserved, seconds since 1970.
    pub started_unix: u64,
    /// Its conversation, such as `codex-2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// The turn of that conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// Since when it waits between turns, seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since_unix: Option<u64>,
    /// Its own background jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_jobs: Option<u32>,
}

impl Delegation {
    /// Whether its owner is gone, so that nobody else will end it.
    pub fn is_orphan(&self) -> bool {
        !self.owner.is_alive()
    }

    /// As the wire has it; its processes are counted now.
    pub fn entry(&self) -> DelegationEntry {
        let alive = self.process.as_ref().filter(|leader| leader.is_alive());
        DelegationEntry {
            handle: self.handle.clone(),
            agent: self.agent.clone(),
            session: self.session.clone(),
            depth: self.depth,
            pid: self.process.as_ref().map_or(0, |leader| leader.pid),
            owner_pid: self.owner.pid,
            processes: alive.map_or(0, |leader| u32::try_from(process::count(leader.pid)).unwrap_or(u32::MAX)),
            cwd: self.cwd.clone(),
            started_unix_seconds: self.started_unix,
            orphaned: self.is_orphan(),
            conversation: self.conversation.clone(),
            turn: self.turn,
            idle_since_unix_seconds: self.idle_since_unix,
            background_jobs: self.background_jobs,
        }
    }
}

/// What is known of a delegation before it has a handle.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The agent.
    pub agent: String,
    /// The session that calls it.
    pub session: String,
    /// Where it works.
    pub cwd: PathBuf,
    /// How deep it is delegated.
    pub depth: u32,
    /// Its conversation and the turn of it.
    pub conversation: Option<(String, u32)>,
}

/// A file that is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// All records, by handle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The delegations.
    pub records: Vec<Delegation>,
    /// What could not be read; it is left where it is.
    pub damaged: Vec<Damaged>,
}

/// The records of one home.
#[derive(Clone, Debug)]
pub struct Delegations {
    dir: PathBuf,
}

impl Delegations {
    /// Of that home.
    pub fn new(layout: &Layout) -> Self {
        Self { dir: layout.delegations() }
    }

    /// Finds a free handle and writes its record, durably. This process is the owner.
    pub fn reserve(&self, draft: Draft) -> io::Result<Delegation> {
        fs::private_dir(&self.dir)?;
        let (conversation, turn) = draft.conversation.unzip();
        let mut record = Delegation {
            handle: String::new(),
            agent: draft.agent,
            session: draft.session,
            cwd: draft.cwd,
            depth: draft.depth,
            process: None,
            owner: Identity::current()?,
            started_unix: crate::clock::unix_ms() / 1000,
            conversation,
            turn,
            idle_since_unix: None,
            background_jobs: None,
        };
        for _ in 0..ATTEMPTS {
            record.handle = process::fresh_handle(&record.agent);
            match fs::create(&self.path(&record.handle)?, &serde_json::to_vec(&record)?, Sync::Durable) {
                Ok(()) => return Ok(record),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "no free handle was found"))
    }

    /// Replaces the record, such as when its process has started (durable) or waits (lazy).
    pub fn save(&self, record: &Delegation, sync: Sync) -> io::Result<()> {
        fs::replace(&self.path(&record.handle)?, &serde_json::to_vec(record)?, sync)
    }

    /// Removes the record: nothing of its run is left. That there is none is no failure.
    pub fn remove(&self, handle: &str) -> io::Result<()> {
        fs::remove(&self.path(handle)?)
    }

    /// The record of `handle`, if there is one.
    pub fn get(&self, handle: &str) -> io::Result<Option<Delegation>> {
        match read(&self.path(handle)?) {
            Ok(record) => Ok(Some(record)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All records, sorted by handle. One that cannot be read does not hide the others.
    pub fn list(&self) -> io::Result<Listing> {
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Listing::default()),
            Err(error) => return Err(error),
        };
        let mut listing = Listing::default();
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_record(path)) {
            match read(&path) {
                Ok(record) => listing.records.push(record),
                // Its run ended while we read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => listing.damaged.push(Damaged { path, reason: error.to_string() }),
            }
        }
        listing.records.sort_by(|a, b| a.handle.cmp(&b.handle));
        listing.damaged.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(listing)
    }

    /// The records whose owner is gone.
    pub fn orphans(&self) -> io::Result<Vec<Delegation>> {
        let mut records = self.list()?.records;
        records.retain(Delegation::is_orphan);
        Ok(records)
    }

    fn path(&self, handle: &str) -> io::Result<PathBuf> {
        if !is_handle(handle) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a handle is a name, a hyphen and 6 hex digits"));
        }
        Ok(self.dir.join(format!("{handle}.json")))
    }
}

/// Whether `text` is like `codex-3f9a2c`. Handles come from people too, and become file names.
pub fn is_handle(text: &str) -> bool {
    text.rsplit_once('-').is_some_and(|(name, hex)| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
        (1..=64).contains(&name.len())
            && name.bytes().all(plain)
            && hex.len() == 6
            && hex.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase())
    })
}

fn is_record(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

fn read(path: &Path) -> io::Result<Delegation> {
    let record: Delegation = serde_json::from_slice(&fs::read_bounded(path, RECORD_BYTES)?)?;
    if path.file_stem().is_none_or(|stem| stem != record.handle.as_str()) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it names another handle"));
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn draft() -> Draft {
        Draft {
            agent: "codex".into(),
            session: "018f0000-0000-7000-8000-000000000001".into(),
            cwd: "/w".into(),
            depth: 1,
            conversation: Some(("codex-1".into(), 2)),
        }
    }

    fn home() -> (tempfile::TempDir, Delegations) {
        let dir = tempfile::tempdir().unwrap();
        let records = Delegations::new(&Layout::open(dir.path()).unwrap());
        (dir, records)
    }

    #[test]
    fn a_reserved_handle_is_on_disk_private_and_its_own() {
        let (_dir, records) = home();
        let (one, two) = (records.reserve(draft()).unwrap(), records.reserve(draft()).unwrap());
        assert_ne!(one.handle, two.handle);
        assert!(is_handle(&one.handle), "{}", one.handle);
        let path = records.path(&one.handle).unwrap();
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(records.get(&one.handle).unwrap(), Some(one.clone()));
        assert_eq!(records.list().unwrap().records.len(), 2);

        records.remove(&one.handle).unwrap();
        records.remove(&one.handle).unwrap();
        assert_eq!(records.list().unwrap().records, [two]);
        assert_eq!(records.get(&one.handle).unwrap(), None);
    }

    #[test]
    fn a_record_of_a_dead_owner_is_an_orphan() {
        let (_dir, records) = home();
        let mut record = records.reserve(draft()).unwrap();
        assert_eq!(records.orphans().unwrap(), []);
        record.owner.start += 1;
        records.save(&record, Sync::Lazy).unwrap();
        assert_eq!(records.orphans().unwrap(), [record.clone()]);
        assert!(record.entry().orphaned);
    }

    #[test]
    fn a_damaged_record_is_named_and_hides_nothing() {
        let (_dir, records) = home();
        let record = records.reserve(draft()).unwrap();
        for (name, content) in [("codex-000001.json", "{"), ("codex-000002.json", ""), ("note.txt", "x")] {
            std::fs::write(records.dir.join(name), content).unwrap();
        }
        std::fs::copy(records.path(&record.handle).unwrap(), records.dir.join("codex-zzzzzz.json")).unwrap();
        let listing = records.list().unwrap();
        assert_eq!(listing.records, [record]);
        let damaged: Vec<_> = listing.damaged.iter().filter_map(|damaged| damaged.path.file_stem()).collect();
        assert_eq!(damaged, ["codex-000001", "codex-000002", "codex-zzzzzz"]);
    }

    #[test]
    fn an_entry_counts_what_lives() {
        let (_dir, records) = home();
        let mut record = records.reserve(draft()).unwrap();
        assert_eq!((record.entry().pid, record.entry().processes), (0, 0));
        record.process = Some(Identity::current().unwrap());
        let entry = record.entry();
        assert!(entry.processes >= 1);
        assert_eq!((entry.pid, entry.turn, entry.conversation), (entry.owner_pid, Some(2), Some("codex-1".into())));
    }

    #[test]
    fn a_handle_is_no_path() {
        for handle in ["../codex-3f9a2c", "codex-3f9a2", "codex", "-3f9a2c", "codex-3F9A2C", "a/b-3f9a2c", ""] {
            assert!(!is_handle(handle), "{handle}");
        }
        assert!(is_handle("codex-3f9a2c") && is_handle("web_fetch-000000"));
        let (_dir, records) = home();
        assert_eq!(records.remove("../x").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
