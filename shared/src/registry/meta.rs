//! What a session is: `sessions/<id>/meta.json`.
//!
//! Read leniently: a field of a newer release is kept out of the way, a missing one has its
//! default, so that sessions outlive releases. No key is in it.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::fs::{self, Sync};
use crate::layout::SessionDir;
use crate::protocol::SessionId;
use crate::protocol::client::{Chat, OnDisconnect, SessionStart};

/// The largest part is a system prompt, which came in one client frame (1 MiB).
const META_BYTES: u64 = 4 << 20;

/// One session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_excessive_bools, reason = "a record of what the wire has as flags, no state machine")]
pub struct SessionMeta {
    /// The session.
    pub id: SessionId,
    /// Its workspace, absolute.
    pub cwd: PathBuf,
    /// The profile of the provider that its client asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model that its client asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The endpoint that its client asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Whether it has no tools.
    pub no_tools: bool,
    /// How deep it is delegated.
    pub delegation_depth: u32,
    /// The chat channel whose owner it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Whether its client approves every request unasked.
    pub auto_approve: bool,
    /// The chat that it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat: Option<Chat>,
    /// Replaces the system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// What becomes of it at its last client's end.
    pub on_disconnect: OnDisconnect,
    /// Its name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The last prompt that its worker knew when it wrote this, at most 120 bytes; for lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_prompt: Option<String>,
    /// The closed session whose history it continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumes: Option<SessionId>,
    /// When it was created.
    pub created_unix_ms: u64,
    /// Whether its processes were ended on purpose.
    pub closed: bool,
    /// When they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_unix_ms: Option<u64>,
    /// The configuration that its client named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_path: Option<PathBuf>,
    /// Values that its client set over the configuration, without secrets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, String>,
    /// Whether its key came from a client, so that a recovered session has to wait for one.
    pub key_from_client: bool,
    /// What its client asked for at `initialize`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

impl SessionMeta {
    /// The session that `start` asks for, created now. The client's environment and overrides that
    /// hold a key are left out.
    pub fn of(id: SessionId, start: &SessionStart) -> Self {
        let client = start.client.clone().unwrap_or_default();
        let (secret, overrides): (BTreeMap<_, _>, _) =
            client.overrides.into_iter().partition(|(key, _)| is_secret(key));
        Self {
            id,
            cwd: start.cwd.clone(),
            provider: start.provider.clone(),
            model: start.model.clone(),
            base_url: start.base_url.clone(),
            no_tools: start.no_tools,
            delegation_depth: start.delegation_depth,
            channel: start.channel.clone(),
            auto_approve: start.auto_approve,
            chat: start.chat.clone(),
            system_prompt: start.system_prompt.clone(),
            on_disconnect: start.on_disconnect.unwrap_or_default(),
            title: start.title.clone(),
            resumes: start.resume,
            created_unix_ms: crate::clock::unix_ms(),
            config_path: client.config_path,
            overrides,
            key_from_client: !secret.is_empty(),
            ..Self::default()
        }
    }

    /// Reads it; `None` if there is none.
    pub fn load(dir: &SessionDir) -> io::Result<Option<Self>> {
        match fs::read_bounded(&dir.meta(), META_BYTES) {
            Ok(content) => Ok(Some(serde_json::from_slice(&content)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes it (0600), whole or not at all. The session's directory has to exist.
    pub fn save(&self, dir: &SessionDir, sync: Sync) -> io::Result<()> {
        fs::replace(&dir.meta(), &serde_json::to_vec(self)?, sync)
    }
}

/// Whether an override of that key path holds a secret.
fn is_secret(key: &str) -> bool {
    crate::redact::ends_as_credential(key) || key.split('.').any(|part| part == "headers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::protocol::client::ClientContext;

    fn session() -> (tempfile::TempDir, SessionId, SessionDir) {
        let dir = tempfile::tempdir().unwrap();
        let id = SessionId::new();
        let session = Layout::open(dir.path()).unwrap().session(id);
        fs::private_dir(session.path()).unwrap();
        (dir, id, session)
    }

    #[test]
    fn what_was_saved_is_loaded_and_the_environment_is_not_in_it() {
        let (_dir, id, session) = session();
        let start = SessionStart {
            cwd: "/w".into(),
            model: Some("m".into()),
            client: Some(ClientContext {
                env: BTreeMap::from([("SCV_API_KEY".into(), "sk-1".into())]),
                overrides: BTreeMap::from([
                    ("agent.max_steps".into(), "3".into()),
                    ("providers.a.api_key".into(), "'sk-2'".into()),
                    ("providers.a.api_key_env".into(), "'A'".into()),
                ]),
                ..ClientContext::default()
            }),
            ..SessionStart::default()
        };
        let meta = SessionMeta { closed: true, closed_unix_ms: Some(2), ..SessionMeta::of(id, &start) };
        assert_eq!(SessionMeta::load(&session).unwrap(), None);
        meta.save(&session, Sync::Durable).unwrap();
        assert_eq!(SessionMeta::load(&session).unwrap(), Some(meta));
        let written = std::fs::read_to_string(session.meta()).unwrap();
        assert!(!written.contains("sk-") && written.contains("api_key_env"), "{written}");
    }

    #[test]
    fn other_releases_are_read() {
        let (_dir, id, session) = session();
        std::fs::write(session.meta(), format!(r#"{{"id":"{id}","cwd":"/w","mood":"new"}}"#)).unwrap();
        let meta = SessionMeta::load(&session).unwrap().unwrap();
        assert_eq!(meta, SessionMeta { id, cwd: "/w".into(), ..SessionMeta::default() });
    }
}
