//! `write`: makes or replaces one text file of the workspace, whole.
//!
//! The new content is in a temporary file beside the target until it is complete and on the disk,
//! and takes the target's name in one step: a crash at any byte leaves the old file or the new
//! one, and at worst a `.scv-*.tmp` beside it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use cap_std::fs::Metadata;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use shared::protocol::server::Risk;
use tokio_util::sync::CancellationToken;

use self::install::Temporary;
use super::visible::visible;
use super::{Output, Prepared, Tool, ToolError, arguments};
use crate::provider::ToolSpec;
use crate::sha256;
use crate::workspace::{Parents, PathError, Place, Workspace};

mod install;
mod preview;
#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod tests;

const NAME: &str = "write";

/// A file is hashed in pieces of this size, between which the turn can be cancelled.
const HASH_PIECE_BYTES: usize = 1 << 20;

/// The tool.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    workspace: Rc<Workspace>,
    max_bytes: usize,
}

/// What the model writes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace.
    path: String,
    /// The whole new content.
    content: String,
    /// `create` makes a new file and fails if the path exists; `replace` fails if it does not.
    mode: Mode,
    /// Only with `replace`: the SHA-256 (hex) that the file has to have now, as `read` and `write`
    /// report it. Another one means that the file has changed, and nothing is written.
    #[serde(default)]
    expected_sha256: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Mode {
    Create,
    Replace,
}

/// A call whose arguments are all right.
#[derive(Debug)]
struct Job {
    path: PathBuf,
    content: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Create,
    Replace { expected: Option<String> },
}

/// The file that would be replaced.
#[derive(Debug)]
struct Old {
    bytes: u64,
    /// Unless it is long, no text, or secret-like.
    text: Option<String>,
}

/// What the model gets; the fields are in the order of their names.
#[derive(Debug, Serialize)]
struct Written<'a> {
    bytes: usize,
    path: &'a Path,
    sha256: String,
}

impl Write {
    /// Writes at most `max_write_bytes` in one call (`tools.max_write_bytes`).
    pub(crate) fn new(workspace: Rc<Workspace>, max_write_bytes: usize) -> Self {
        Self { workspace, max_bytes: max_write_bytes }
    }
}

impl Tool for Write {
    fn spec(&self) -> ToolSpec {
        let max = self.max_bytes;
        ToolSpec {
            name: NAME.to_owned(),
            description: format!(
                "Writes one UTF-8 text file of the workspace, whole and atomically, at most {max} bytes. create also \
                 makes missing directories; replace keeps the mode of the file. A symlink is not written through: \
                 name the file that it leads to. The result is JSON: bytes, path, sha256 of the new content."
            ),
            parameters: arguments::schema::<Arguments>(),
        }
    }

    fn prepare(&self, arguments: Value) -> Result<Prepared<'_>, ToolError> {
        let job = self.check(arguments::parse(NAME, arguments)?)?;
        let old = self.look(&job)?;
        let summary = job.summary(old.as_ref());
        Ok(Prepared {
            risk: Risk::Filesystem,
            summary,
            limit: None,
            run: Box::new(move |context| Box::pin(async move { self.write(&job, &context.cancel).await })),
        })
    }
}

impl Write {
    fn check(&self, arguments: Arguments) -> Result<Job, ToolError> {
        let Arguments { path, content, mode, expected_sha256 } = arguments;
        let path = self.workspace.check(&path)?.to_owned();
        if content.len() > self.max_bytes {
            let (bytes, max) = (content.len(), self.max_bytes);
            return Err(ToolError::Limit(format!("content has {bytes} bytes; write takes at most {max}")));
        }
        // Models often send "" for an optional field that they mean to leave out.
        let expected = expected_sha256.map(|hash| hash.trim().to_ascii_lowercase()).filter(|hash| !hash.is_empty());
        if expected.as_deref().is_some_and(|hash| !sha256::is_hash(hash)) {
            return Err(ToolError::Invalid("expected_sha256 has to be 64 hex digits".to_owned()));
        }
        let kind = match (mode, expected) {
            (Mode::Create, None) => Kind::Create,
            (Mode::Create, Some(_)) => {
                return Err(ToolError::Invalid("expected_sha256 goes with mode replace only".to_owned()));
            }
            (Mode::Replace, expected) => Kind::Replace { expected },
        };
        Ok(Job { path, content, kind })
    }

    /// Tells what would fail anyway before a person is asked, and gives what would be lost.
    fn look(&self, job: &Job) -> Result<Option<Old>, ToolError> {
        let place = match self.workspace.place(&job.path, Parents::Need) {
            Err(PathError::Missing(_)) if matches!(job.kind, Kind::Create) => return Ok(None),
            other => other?,
        };
        let Some(seen) = job.allowed(&place)? else { return Ok(None) };
        // The summary is kept in the journal and may go to a chat: no secret of a file goes there.
        let shown = seen.len() <= self.max_bytes as u64 && !self.workspace.is_secret_like(&job.path);
        let text = shown.then(|| read_text(&place, seen.len())).flatten();
        Ok(Some(Old { bytes: seen.len(), text }))
    }

    async fn write(&self, job: &Job, cancel: &CancellationToken) -> Result<Output, ToolError> {
        let parents = if matches!(job.kind, Kind::Create) { Parents::Make } else { Parents::Need };
        let place = self.workspace.place(&job.path, parents)?;
        let old = job.allowed(&place)?;
        let temporary = Temporary::write(&place.dir, job.content.as_bytes(), old.as_ref())
            .map_err(|error| job.failed("cannot write beside", &error))?;
        if let Kind::Replace { expected: Some(expected) } = &job.kind {
            job.same(expected, &job.hash(place.open_file()?, cancel).await?)?;
        }
        job.go_on(cancel)?;
        // From here to the end nothing waits: what was seen is what is replaced, but for a writer
        // outside of SCV in this very moment.
        match &job.kind {
            Kind::Create => temporary.install_new(&place.name),
            Kind::Replace { .. } => {
                job.allowed(&place)?;
                temporary.install_over(&place.name)
            }
        }
        .map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => job.exists(),
            _ => job.failed("cannot write", &error),
        })?;
        crate::workspace::sync_dir(&place.dir)
            .map_err(|error| job.failed("wrote, but could not make durable,", &error))?;
        job.written()
    }
}

impl Job {
    /// Whether the mode allows what is at `place` now; gives the file that would be replaced.
    fn allowed(&self, place: &Place) -> Result<Option<Metadata>, ToolError> {
        match &self.kind {
            Kind::Create if place.look()?.is_some() => Err(self.exists()),
            Kind::Create => Ok(None),
            Kind::Replace { .. } => match place.look_at_file()? {
                Some(seen) => Ok(Some(seen)),
                None => Err(ToolError::Failed(format!("{} does not exist; mode create makes it", self.path.display()))),
            },
        }
    }

    fn same(&self, expected: &str, found: &str) -> Result<(), ToolError> {
        if found == expected {
            return Ok(());
        }
        let path = self.path.display();
        Err(ToolError::Failed(format!("{path} has changed: its sha256 is {found}, not {expected}; read it again")))
    }

    fn exists(&self) -> ToolError {
        ToolError::Failed(format!("{} exists; mode replace replaces a file", self.path.display()))
    }

    fn failed(&self, what: &str, error: &io::Error) -> ToolError {
        ToolError::Failed(format!("{what} {}: {error}", self.path.display()))
    }

    fn go_on(&self, cancel: &CancellationToken) -> Result<(), ToolError> {
        if cancel.is_cancelled() {
            return Err(ToolError::Cancelled(format!("cancelled; {} was not written", self.path.display())));
        }
        Ok(())
    }

    /// The hash of a file of any size: others get their turn after each piece.
    async fn hash(&self, file: File, cancel: &CancellationToken) -> Result<String, ToolError> {
        let mut file = file;
        let mut hash = Sha256::new();
        let mut piece = vec![0; HASH_PIECE_BYTES];
        loop {
            self.go_on(cancel)?;
            match file.read(&mut piece) {
                Ok(0) => return Ok(sha256::hex(hash)),
                Ok(read) => hash.update(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("cannot read", &error)),
            }
            tokio::task::yield_now().await;
        }
    }

    fn written(&self) -> Result<Output, ToolError> {
        let written =
            Written { bytes: self.content.len(), path: &self.path, sha256: sha256::of(self.content.as_bytes()) };
        let text = serde_json::to_string(&written).map_err(|error| ToolError::Failed(error.to_string()))?;
        Ok(Output { text, success: true, truncated: false })
    }

    fn summary(&self, old: Option<&Old>) -> String {
        let path = visible(&self.path.display().to_string());
        let new = &self.content;
        match old {
            None => format!("create {path}: {} bytes\n{}", new.len(), preview::lines("", new)),
            Some(Old { bytes, text: None }) => format!("replace {path}: {bytes} → {} bytes", new.len()),
            Some(Old { bytes, text: Some(old) }) => {
                format!("replace {path}: {bytes} → {} bytes\n{}", new.len(), preview::lines(old, new))
            }
        }
        .trim_end()
        .to_owned()
    }
}

fn read_text(place: &Place, bytes: u64) -> Option<String> {
    let mut text = String::new();
    place.open_file().ok()?.take(bytes).read_to_string(&mut text).ok()?;
    Some(text)
}
