//! Sessions without a worker by the thousand: their directories, written as a worker leaves them.

use std::fs;
use std::path::Path;

use shared::fs::{Lock, Sync};
use shared::layout::Layout;
use shared::protocol::SessionId;
use shared::protocol::client::OnDisconnect;
use shared::registry::SessionMeta;

/// Makes `count` sessions that hibernate, oldest first.
pub fn hibernated(layout: &Layout, cwd: &Path, count: usize) -> Vec<SessionId> {
    layout.create().expect("the home is writable");
    (0..count).map(|n| one(layout, cwd, |meta| meta.last_prompt = Some(format!("prompt {n}")))).collect()
}

/// Makes one session at rest, with what `change` makes of its meta file.
pub fn one(layout: &Layout, cwd: &Path, change: impl FnOnce(&mut SessionMeta)) -> SessionId {
    let id = SessionId::new();
    let dir = layout.session(id);
    shared::fs::private_dir(dir.path()).expect("a session's directory");
    let mut meta = SessionMeta {
        id,
        cwd: cwd.to_owned(),
        on_disconnect: OnDisconnect::Keep,
        created_unix_ms: shared::clock::unix_ms(),
        ..SessionMeta::default()
    };
    change(&mut meta);
    meta.save(&dir, Sync::Lazy).expect("its meta file");
    fs::write(dir.journal(), "{\"record\":\"ceiling\",\"seq\":4096}\n").expect("its journal");
    Lock::try_acquire(&dir.lock()).expect("its lock");
    id
}
