//! Marks a session as closed in its `meta.json`. The rest of that file is the worker's.

use std::io;

use serde_json::Value;
use shared::clock;
use shared::fs::{self, Lock, Sync};
use shared::layout::Layout;
use shared::protocol::SessionId;

/// A meta file has a few hundred bytes; a system prompt of 1 MiB may be in it, escaped.
const MAX_META_BYTES: u64 = 8 << 20;

/// Marks a session that has no worker as closed. Fails with `WouldBlock` if somebody has it.
pub(crate) fn mark_closed(layout: &Layout, session: SessionId) -> io::Result<()> {
    let dir = layout.session(session);
    let _owner = Lock::try_acquire(&dir.lock())?.ok_or(io::ErrorKind::WouldBlock)?;
    let json = fs::read_bounded(&dir.meta(), MAX_META_BYTES)?;
    let mut meta: Value = serde_json::from_slice(&json)?;
    if let Some(fields) = meta.as_object_mut().filter(|fields| fields.get("closed") != Some(&Value::Bool(true))) {
        // All other fields stay as they are, also those that we do not know.
        fields.insert("closed".into(), true.into());
        fields.insert("closed_unix_ms".into(), clock::unix_ms().into());
    }
    fs::replace(&dir.meta(), meta.to_string().as_bytes(), Sync::Durable)?;
    fs::remove(&layout.wanted_session(session))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marking_a_session_closed_keeps_every_other_field() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        layout.create().unwrap();
        let id = SessionId::new();
        fs::private_dir(layout.session(id).path()).unwrap();
        let json = br#"{"cwd":"/w","model":"m","from_the_future":[1],"closed":false}"#;
        std::fs::write(layout.session(id).meta(), json).unwrap();
        std::fs::write(layout.wanted_session(id), "").unwrap();

        mark_closed(&layout, id).unwrap();
        let mut now: Value = serde_json::from_slice(&std::fs::read(layout.session(id).meta()).unwrap()).unwrap();
        assert!(now["closed_unix_ms"].take().as_u64() > Some(0));
        assert_eq!(
            now,
            serde_json::json!({"closed_unix_ms": null, "cwd": "/w", "model": "m", "from_the_future": [1], "closed": true})
        );
        assert!(!layout.wanted_session(id).exists());

        let _owner = Lock::try_acquire(&layout.session(id).lock()).unwrap().unwrap();
        assert_eq!(mark_closed(&layout, id).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
