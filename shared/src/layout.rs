//! Every path of an instance. No other code joins paths of its own below the home.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::fs;
use crate::protocol::SessionId;

/// One instance: one home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    home: PathBuf,
}

impl Layout {
    /// The instance of `home`, which has to be absolute. It is made if it is missing (0700) and
    /// made canonical, so that two spellings of one home are one instance.
    pub fn open(home: &Path) -> io::Result<Self> {
        if !home.is_absolute() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the home has to be an absolute path"));
        }
        fs::private_dir(home)?;
        Ok(Self { home: home.canonicalize()? })
    }

    /// `--scv-home`, else `$SCV_HOME`, else `~/.scv`. The arguments are the environment's values:
    /// only a `main` reads it.
    pub fn choose(flag: Option<PathBuf>, scv_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
        flag.or_else(|| scv_home.filter(|v| !v.is_empty()).map(PathBuf::from))
            .or_else(|| home.filter(|v| !v.is_empty()).map(|home| PathBuf::from(home).join(".scv")))
    }

    /// Makes the directories that SCV writes to.
    pub fn create(&self) -> io::Result<()> {
        for dir in
            [self.delegations(), self.conversations(), self.workers(), self.sessions(), self.wanted(), self.usage()]
        {
            fs::private_dir(&dir)?;
        }
        Ok(())
    }

    /// The instance: the first 8 hex digits of SHA-256 of the canonical home.
    pub fn instance(&self) -> String {
        let digest = Sha256::digest(self.home.as_os_str().as_encoded_bytes());
        format!("{:08x}", u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }

    /// The home itself.
    pub fn home(&self) -> &Path {
        &self.home
    }
    /// What a person edits.
    pub fn config(&self) -> PathBuf {
        self.home.join("config.toml")
    }
    /// Sign-ins that SCV writes.
    pub fn credentials(&self) -> PathBuf {
        self.home.join("credentials")
    }
    /// The private home of a delegated agent.
    pub fn agent_home(&self, agent: &str) -> PathBuf {
        self.home.join("agents").join(agent)
    }
    /// The user's skills.
    pub fn skills(&self) -> PathBuf {
        self.home.join("skills")
    }
    /// Chat logs.
    pub fn history(&self) -> PathBuf {
        self.home.join("history")
    }
    /// What SCV writes and reads back.
    pub fn state(&self) -> PathBuf {
        self.home.join("state")
    }
    /// The supervisor's socket.
    pub fn socket(&self) -> PathBuf {
        self.state().join("server.sock")
    }
    /// The supervisor's lock; holds its pid.
    pub fn lock(&self) -> PathBuf {
        self.state().join("server.lock")
    }
    /// Exists after `scv stop`: only `scv start` and `scv run` start anything again.
    pub fn stopped(&self) -> PathBuf {
        self.state().join("stopped")
    }
    /// Exists from `scv start` to `scv stop`: the supervisor stays also with nothing to do.
    pub fn kept(&self) -> PathBuf {
        self.state().join("kept")
    }
    /// Where a detached supervisor writes its log.
    pub fn log(&self) -> PathBuf {
        self.state().join("scvd.log")
    }
    /// Records of running delegations.
    pub fn delegations(&self) -> PathBuf {
        self.state().join("delegations")
    }
    /// Markers of live CLI conversations.
    pub fn conversations(&self) -> PathBuf {
        self.state().join("conversations")
    }
    /// What was imported for agents.
    pub fn imports(&self) -> PathBuf {
        self.state().join("imports")
    }
    /// Live workers.
    pub fn workers(&self) -> PathBuf {
        self.state().join("workers")
    }
    /// One worker's bundle.
    pub fn worker(&self, id: &str) -> WorkerDir {
        WorkerDir(self.workers().join(id))
    }
    /// All sessions.
    pub fn sessions(&self) -> PathBuf {
        self.state().join("sessions")
    }
    /// One session.
    pub fn session(&self, id: SessionId) -> SessionDir {
        SessionDir(self.sessions().join(id.to_string()))
    }
    /// Sessions to start again after a crash.
    pub fn wanted(&self) -> PathBuf {
        self.state().join("wanted")
    }
    /// The mark of one such session.
    pub fn wanted_session(&self, id: SessionId) -> PathBuf {
        self.wanted().join(id.to_string())
    }
    /// Sessions on their way out.
    pub fn trash(&self) -> PathBuf {
        self.state().join("trash")
    }
    /// One line a turn or delegation, one file a day.
    pub fn usage(&self) -> PathBuf {
        self.state().join("usage")
    }
    /// Files of chats.
    pub fn media(&self) -> PathBuf {
        self.state().join("media")
    }
    /// Files on their way to chats.
    pub fn outbox(&self) -> PathBuf {
        self.media().join("outbox")
    }
}

/// `state/workers/<id>/`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerDir(PathBuf);

impl WorkerDir {
    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
    /// Written before the worker is spawned.
    pub fn intent(&self) -> PathBuf {
        self.0.join("intent.json")
    }
    /// Pid and start time, written by the worker when it listens.
    pub fn worker(&self) -> PathBuf {
        self.0.join("worker.json")
    }
    /// The name of the socket in the directory; see [`crate::link::address`].
    pub fn socket(&self) -> PathBuf {
        self.0.join("control.sock")
    }
    /// A session's directory that has no name yet; goes with the bundle if it never gets one.
    pub fn session(&self) -> SessionDir {
        SessionDir(self.0.join("session"))
    }
    /// How it ended, written by the worker itself.
    pub fn exit(&self) -> PathBuf {
        self.0.join("exit.json")
    }
}

/// `state/sessions/<id>/`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionDir(PathBuf);

impl SessionDir {
    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
    /// What the session is: workspace, model, owner.
    pub fn meta(&self) -> PathBuf {
        self.0.join("meta.json")
    }
    /// What happened in it.
    pub fn journal(&self) -> PathBuf {
        self.0.join("journal.jsonl")
    }
    /// Output too large for a journal line, by SHA-256.
    pub fn blobs(&self) -> PathBuf {
        self.0.join("blobs")
    }
    /// Files that came with prompts.
    pub fn attachments(&self) -> PathBuf {
        self.0.join("attachments")
    }
    /// The environment of its children.
    pub fn env(&self) -> PathBuf {
        self.0.join("env")
    }
    /// Written by the supervisor before it kills a worker that does not end: for what it had to
    /// end, `stopped` or `closed`. The next worker tells it and removes it.
    pub fn ended(&self) -> PathBuf {
        self.0.join("ended")
    }
    /// Whoever has its kernel lock owns the session.
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }
    /// What its workers wrote on stderr.
    pub fn log(&self) -> PathBuf {
        self.0.join("worker.log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_spellings_of_a_home_are_one_instance() {
        let dir = tempfile::tempdir().unwrap();
        let a = Layout::open(&dir.path().join("h")).unwrap();
        std::os::unix::fs::symlink(a.home(), dir.path().join("link")).unwrap();
        let b = Layout::open(&dir.path().join("link")).unwrap();
        assert_eq!(a, b);
        assert_eq!(a.instance().len(), 8);
    }

    #[test]
    fn a_custom_home_never_falls_back() {
        assert_eq!(Layout::choose(Some("/a".into()), Some("/b".into()), Some("/c".into())), Some("/a".into()));
        assert_eq!(Layout::choose(None, Some("/b".into()), Some("/c".into())), Some("/b".into()));
        assert_eq!(Layout::choose(None, Some("".into()), Some("/c".into())), Some("/c/.scv".into()));
        assert_eq!(Layout::choose(None, None, None), None);
    }
}
