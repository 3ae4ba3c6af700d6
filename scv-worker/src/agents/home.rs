//! The private home of one agent and the environment that it runs in.
//!
//! An agent reads and writes its own copy of everything, so that it never uses the user's
//! sign-ins, the parent's configuration, or another agent's credentials.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shared::layout::Layout;

use super::adapters::{Adapter, may_inherit};

/// An environment, complete.
pub(crate) type Env = BTreeMap<String, String>;

/// XDG directories, where they are below a home by default.
const XDG: &[(&str, &str)] = &[
    ("XDG_CACHE_HOME", ".cache"),
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_DATA_HOME", ".local/share"),
    ("XDG_STATE_HOME", ".local/state"),
];

/// How the files of final messages begin.
const LAST_PREFIX: &str = "last-";
/// No call lasts longer (`tools.max_timeout_seconds` is at most 86400), so nobody reads an older file.
const LAST_KEPT: Duration = Duration::from_hours(25);

/// `$SCV_HOME/agents/<name>`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentHome(PathBuf);

impl AgentHome {
    /// Where the agent called `name` lives; nothing is made yet.
    pub(crate) fn new(layout: &Layout, name: &str) -> Self {
        Self(layout.agent_home(name))
    }

    /// Makes it and its `tmp`, mode 0700, and removes what calls of a killed worker left there.
    pub(crate) fn create(&self) -> io::Result<()> {
        let tmp = self.tmp();
        shared::fs::private_dir(&tmp)?;
        for entry in std::fs::read_dir(&tmp)?.flatten() {
            let is_ours = entry.file_name().as_encoded_bytes().starts_with(LAST_PREFIX.as_bytes());
            let age = entry.metadata().and_then(|file| file.modified()).ok().and_then(|at| at.elapsed().ok());
            if is_ours && age.is_some_and(|age| age > LAST_KEPT) {
                shared::fs::remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// A new path for the final message of one turn; nothing is made there.
    pub(crate) fn last_message(&self) -> PathBuf {
        self.tmp().join(format!("{LAST_PREFIX}{}", uuid::Uuid::now_v7().simple()))
    }

    /// The home itself.
    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// For short-lived files: programs also write to the temporary directory.
    pub(crate) fn tmp(&self) -> PathBuf {
        self.0.join("tmp")
    }

    /// Where SCV, started by the agent, lives.
    fn scv(&self) -> PathBuf {
        self.0.join(".scv")
    }

    /// The environment of `adapter`'s program: `inherited` without what it must not see, and its
    /// private places.
    pub(crate) fn env(&self, adapter: &Adapter, full: bool, inherited: &Env) -> Env {
        let mut env: Env = inherited
            .iter()
            .filter(|(name, _)| may_inherit(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let mut set = |name: &str, value: &Path| env.insert(name.to_owned(), value.to_string_lossy().into_owned());
        set("HOME", &self.0);
        set("SCV_HOME", &self.scv());
        set("TMPDIR", &self.tmp());
        for (name, below) in XDG {
            set(name, &self.0.join(below));
        }
        for (name, below) in adapter.state {
            let path = if below.is_empty() { self.0.clone() } else { self.0.join(below) };
            set(name, &path);
        }
        for (name, value) in adapter.env.iter().chain(if full { adapter.full.env } else { &[] }) {
            env.insert((*name).to_owned(), (*value).to_owned());
        }
        env
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::adapters::ALL;

    #[test]
    fn every_agent_runs_in_its_own_places_only() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(&dir.path().join("h")).unwrap();
        let inherited: Env = [
            ("HOME", "/home/u"),
            ("OPENAI_API_KEY", "sk"),
            ("PATH", "/bin"),
            ("SCV_HOME", "/h"),
            ("TMPDIR", "/tmp"),
            ("XDG_CONFIG_HOME", "/home/u/.config"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
        for adapter in ALL {
            let home = AgentHome::new(&layout, adapter.name);
            let env = home.env(adapter, false, &inherited);
            assert_eq!(env["PATH"], "/bin");
            assert!(!env.contains_key("OPENAI_API_KEY"));
            let private =
                ["HOME", "SCV_HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"];
            for name in private.iter().chain(adapter.state.iter().map(|(name, _)| name)) {
                assert!(Path::new(&env[*name]).starts_with(home.path()), "{} of {}", name, adapter.name);
            }
        }
    }

    #[test]
    fn what_a_killed_worker_left_goes_with_a_later_call_and_nothing_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(&dir.path().join("h")).unwrap();
        let home = AgentHome::new(&layout, "a");
        home.create().unwrap();
        let (old, new, other) = (home.last_message(), home.last_message(), home.tmp().join("other"));
        for path in [&old, &new, &other] {
            std::fs::write(path, "").unwrap();
        }
        let long_ago = std::time::SystemTime::now() - Duration::from_hours(26);
        for path in [&old, &other] {
            std::fs::File::options().append(true).open(path).unwrap().set_modified(long_ago).unwrap();
        }
        home.create().unwrap();
        assert_eq!([&old, &new, &other].map(|path| path.exists()), [false, true, true]);
    }

    #[test]
    fn a_home_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(&dir.path().join("h")).unwrap();
        let home = AgentHome::new(&layout, "a");
        home.create().unwrap();
        for path in [home.path(), &home.tmp()] {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
    }
}
