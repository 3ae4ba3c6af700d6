//! Marks that every process of a run inherits, so that concurrent runs can be told apart.
//!
//! Two kinds: variables, which say everything but go with `env -i`, and `RLIMIT_RTTIME`, which
//! holds a few bits and survives exec, setsid, a double fork and a cleared environment. That limit
//! binds realtime processes only, and at these values not even those.

use std::io;

use rustix::process::Resource;
use sha2::{Digest as _, Sha256};

use super::limits::Lent;
use super::proc;
use crate::protocol::SessionId;

/// The variable that names a run: `<instance>/<session>/<handle>`, after a comma where SCV itself
/// runs delegated.
pub const PARENT: &str = "SCV_PARENT";
/// The variable that names the session.
pub const SESSION: &str = "SCV_SESSION";
/// The variable that says how deep a run is delegated.
pub const DEPTH: &str = "SCV_DELEGATION_DEPTH";

/// The top 16 bits of a soft limit that names a run. Below [`SESSION_MAGIC`]: no soft limit may
/// exceed its hard limit.
const RUN_MAGIC: u64 = 0x5c56 << 48;
/// The top 16 bits of a hard limit that names a session.
const SESSION_MAGIC: u64 = 0x5c57 << 48;
const MAGIC: u64 = 0xffff << 48;
const LOW_24: u64 = (1 << 24) - 1;

/// More of a process's environment is not read; one variable may have 128 KiB (execve(2)).
const ENVIRONMENT_BYTES: usize = 1 << 20;

/// Who a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The instance ([`crate::layout::Layout::instance`]).
    pub instance: String,
    /// The session.
    pub session: SessionId,
    /// `<agent or tool>-<6 hex>`, unique in the home.
    pub handle: String,
    /// What the run's processes read in `SCV_DELEGATION_DEPTH`.
    pub depth: u32,
    /// The `SCV_PARENT` of this process itself, where it runs delegated.
    pub inherited: Option<String>,
}

impl Tag {
    /// `<instance>/<session>/<handle>`.
    pub fn entry(&self) -> String {
        format!("{}/{}/{}", self.instance, self.session, self.handle)
    }

    /// The variables, with their values.
    pub fn variables(&self) -> [(&'static str, String); 3] {
        let chain = match self.inherited.as_deref() {
            Some(outer) if !outer.is_empty() => format!("{outer},{}", self.entry()),
            _ => self.entry(),
        };
        [(SESSION, self.session.to_string()), (PARENT, chain), (DEPTH, self.depth.to_string())]
    }

    fn run_bits(&self) -> u64 {
        RUN_MAGIC | handle_bits(&self.handle) << 24 | instance_bits(&self.instance)
    }

    /// Makes what this process starts carry the tag, until the guard is dropped. Without privilege
    /// a hard limit that is already lower stays: then it names the outermost session.
    pub(super) fn on_limits(&self) -> Lent {
        Lent::set(Resource::Rttime, self.run_bits(), Some(session_bits(self.session)))
    }
}

/// The marks that a process carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    run: Option<u64>,
    session: Option<u64>,
    chain: Vec<String>,
}

impl Marks {
    /// Reads what `pid` carries; nothing if it is gone or may not be read.
    pub fn of(pid: i32) -> Self {
        let (run, session) = limits_of(pid).unwrap_or_default();
        Self { run, session, chain: chain_of(pid).unwrap_or_default() }
    }

    /// Whether nothing says that SCV started it.
    pub fn is_empty(&self) -> bool {
        self.run.is_none() && self.session.is_none() && self.chain.is_empty()
    }

    /// Whether it belongs to that run, directly or through an SCV that runs in it.
    pub fn names(&self, tag: &Tag) -> bool {
        self.run == Some(tag.run_bits()) || self.chain.contains(&tag.entry())
    }

    /// Whether it belongs to a run of that session.
    pub fn names_session(&self, session: SessionId) -> bool {
        let id = session.to_string();
        self.session == Some(session_bits(session))
            || self.chain.iter().any(|entry| entry.split('/').nth(1) == Some(id.as_str()))
    }

    /// Whether it belongs to a run of that instance.
    pub fn names_instance(&self, instance: &str) -> bool {
        self.run.is_some_and(|run| run & LOW_24 == instance_bits(instance))
            || self.chain.iter().any(|entry| entry.split('/').next() == Some(instance))
    }
}

/// A handle `<name>-<6 hex>` with random digits. Whether it is free, the caller finds out.
pub fn fresh_handle(name: &str) -> String {
    // The last bytes of a v7 id are random.
    format!("{name}-{:06x}", uuid::Uuid::now_v7().as_u64_pair().1 & LOW_24)
}

/// The runs and the session in a `SCV_PARENT` value, outermost first.
fn chain_of(pid: i32) -> io::Result<Vec<String>> {
    let environment = proc::read(&format!("/proc/{pid}/environ"), ENVIRONMENT_BYTES)?;
    let value = environment.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(PARENT.as_bytes())?.strip_prefix(b"=")?;
        std::str::from_utf8(value).ok()
    });
    Ok(value.unwrap_or_default().split(',').filter(|entry| !entry.is_empty()).map(str::to_owned).collect())
}

/// Run and session in the limits of `pid`, from the line `Max realtime timeout <soft> <hard> us`.
fn limits_of(pid: i32) -> io::Result<(Option<u64>, Option<u64>)> {
    let limits = proc::read(&format!("/proc/{pid}/limits"), 4096)?;
    let limits = String::from_utf8_lossy(&limits);
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"));
    let mut values = line.unwrap_or_default().split_ascii_whitespace().map(|value| value.parse::<u64>().ok());
    let mut with = |magic| values.next().flatten().filter(|value| value & MAGIC == magic);
    Ok((with(RUN_MAGIC), with(SESSION_MAGIC)))
}

/// The 6 hex digits at the end of a handle; of a handle without them, a digest.
fn handle_bits(handle: &str) -> u64 {
    handle
        .rsplit_once('-')
        .filter(|(_, hex)| hex.len() == 6)
        .and_then(|(_, hex)| u64::from_str_radix(hex, 16).ok())
        .unwrap_or_else(|| digest_bits(handle))
}

fn instance_bits(instance: &str) -> u64 {
    instance.get(..6).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or_else(|| digest_bits(instance))
}

fn digest_bits(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    u64::from_be_bytes([0, 0, 0, 0, 0, digest[0], digest[1], digest[2]])
}

/// The last 48 bits of the id: they are random in the versions of UUID that we make.
fn session_bits(session: SessionId) -> u64 {
    SESSION_MAGIC | (session.as_uuid().as_u64_pair().1 & !MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(handle: &str, inherited: Option<&str>) -> Tag {
        Tag {
            instance: "0a1b2c3d".into(),
            session: "018f0000-0000-7000-8000-00000000beef".parse().unwrap(),
            handle: handle.into(),
            depth: 1,
            inherited: inherited.map(str::to_owned),
        }
    }

    #[test]
    fn the_limits_name_run_instance_and_session() {
        let tag = tag("codex-3f9a2c", None);
        assert_eq!(tag.run_bits(), 0x5c56_3f9a_2c0a_1b2c);
        assert_eq!(session_bits(tag.session), 0x5c57_0000_0000_beef);
        assert!(tag.run_bits() < session_bits(tag.session));
    }

    #[test]
    fn a_chain_is_appended_to() {
        let [_, (_, chain), (_, depth)] = tag("bash-000001", Some("i/s/scv-000002")).variables();
        assert_eq!(chain, "i/s/scv-000002,0a1b2c3d/018f0000-0000-7000-8000-00000000beef/bash-000001");
        assert_eq!(depth, "1");
    }

    #[test]
    fn marks_know_their_run_their_session_and_their_instance() {
        let (mine, other) = (tag("codex-3f9a2c", None), tag("codex-3f9a2d", None));
        let by_limit = Marks { run: Some(mine.run_bits()), ..Marks::default() };
        let by_name = Marks { chain: vec!["x/y/z".into(), mine.entry()], ..Marks::default() };
        for marks in [&by_limit, &by_name] {
            assert!(marks.names(&mine) && !marks.names(&other), "{marks:?}");
            assert!(marks.names_instance("0a1b2c3d") && !marks.names_instance("1a1b2c3d"), "{marks:?}");
        }
        assert!(by_name.names_session(mine.session) && !by_limit.names_session(mine.session));
        assert!(Marks::of(i32::MAX).is_empty());
    }

    #[test]
    fn a_handle_without_digits_has_bits_too() {
        assert_ne!(handle_bits("codex"), handle_bits("claude"));
        assert!(handle_bits("codex") <= LOW_24);
        assert_eq!(handle_bits("codex-00000f"), 15);
    }
}
