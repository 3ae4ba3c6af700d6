//! `read`: a range of one text file of the workspace.
//!
//! The range counts bytes and is cut back to whole characters; the result says where to go on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::rc::Rc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use shared::protocol::server::Risk;

use self::range::RangeError;
use super::visible::visible;
use super::{Output, Prepared, Tool, ToolError, arguments};
use crate::provider::ToolSpec;
use crate::sha256;
use crate::workspace::Workspace;

mod range;
#[cfg(test)]
mod tests;

const NAME: &str = "read";

/// The tool.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    workspace: Rc<Workspace>,
    max_bytes: u64,
    default_bytes: u64,
}

/// What the model writes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace.
    path: String,
    /// The first byte to read, from 0. To go on after a truncated result, its `next_offset`.
    #[serde(default)]
    offset: Option<u64>,
    /// How many bytes to read at most.
    #[serde(default)]
    limit: Option<u64>,
}

/// What the model gets; the fields are in the order of their names.
#[derive(Debug, Serialize)]
struct Selected {
    content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    total_bytes: u64,
    truncated: bool,
}

impl Read {
    /// Reads at most `max_read_bytes` of a file in one call (`tools.max_read_bytes`), and
    /// `output_limit_bytes` where the call does not say how many (`tools.output_limit_bytes`).
    pub(crate) fn new(workspace: Rc<Workspace>, max_read_bytes: usize, output_limit_bytes: usize) -> Self {
        let default_bytes = output_limit_bytes.min(max_read_bytes);
        Self { workspace, max_bytes: max_read_bytes as u64, default_bytes: default_bytes as u64 }
    }
}

impl Tool for Read {
    fn spec(&self) -> ToolSpec {
        let Self { max_bytes, default_bytes, .. } = self;
        let mut parameters = arguments::schema::<Arguments>();
        let limit = &mut parameters["properties"]["limit"];
        limit["minimum"] = json!(1);
        limit["maximum"] = json!(max_bytes);
        limit["description"] = json!(format!("How many bytes to read at most. Default {default_bytes}."));
        ToolSpec {
            name: NAME.to_owned(),
            description: "Reads a UTF-8 text file of the workspace, or a range of its bytes. The result is JSON: \
                          content, offset, total_bytes, truncated; next_offset where the file goes on; sha256 where \
                          content is the whole file. Directories and binary files are refused: use bash for those."
                .to_owned(),
            parameters,
        }
    }

    fn prepare(&self, arguments: Value) -> Result<Prepared<'_>, ToolError> {
        let Arguments { path, offset, limit } = arguments::parse(NAME, arguments)?;
        let path = self.workspace.check(&path)?.to_owned();
        let offset = offset.unwrap_or(0);
        let limit = limit.unwrap_or(self.default_bytes);
        if !(1..=self.max_bytes).contains(&limit) {
            let max = self.max_bytes;
            return Err(ToolError::Invalid(format!("limit is {limit}; read takes 1 to {max} bytes at a time")));
        }
        Ok(Prepared {
            risk: if self.workspace.is_secret_like(&path) { Risk::Filesystem } else { Risk::ReadOnly },
            summary: summary(&path, offset, limit),
            limit: None,
            run: Box::new(move |_| Box::pin(async move { self.read(&path, offset, limit) })),
        })
    }
}

impl Read {
    fn read(&self, path: &Path, offset: u64, limit: u64) -> Result<Output, ToolError> {
        let file = self.workspace.open_file(path)?;
        let selected = select(&file, offset, limit).map_err(|error| tell(path, &error))?;
        let text = serde_json::to_string(&selected).map_err(|error| ToolError::Failed(error.to_string()))?;
        Ok(Output { text, success: true, truncated: selected.truncated })
    }
}

fn select(file: &File, offset: u64, limit: u64) -> Result<Selected, RangeError> {
    let total = file.metadata()?.len();
    if offset > total {
        return Err(RangeError::PastTheEnd { offset, total });
    }
    // A few bytes before the start tell whether it is inside a character.
    let before = offset.min(range::CHARACTER_BYTES - 1);
    let wanted = before + limit.min(total - offset);
    let bytes = read_at(file, offset - before, wanted)?;
    // Fewer: the file has become shorter, and this is its end.
    let shrunk = (bytes.len() as u64) < wanted;
    let start = usize::try_from(before).unwrap_or(0).min(bytes.len());
    let to_the_end = shrunk || offset + limit >= total;
    let content = range::text(&bytes, start, offset, to_the_end)?;
    let end = offset + content.len() as u64;
    let total_bytes = if shrunk { end } else { total };
    let truncated = end < total_bytes;
    Ok(Selected {
        next_offset: truncated.then_some(end),
        offset,
        sha256: (offset == 0 && !truncated).then(|| sha256::of(content.as_bytes())),
        total_bytes,
        truncated,
        content: content.to_owned(),
    })
}

fn read_at(file: &File, from: u64, wanted: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(wanted).map_err(io::Error::other)?];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], from + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn tell(path: &Path, error: &RangeError) -> ToolError {
    let text = format!("{}: {error}", path.display());
    match error {
        RangeError::PastTheEnd { .. } | RangeError::InsideCharacter { .. } | RangeError::LimitTooSmall { .. } => {
            ToolError::Invalid(text)
        }
        RangeError::NotText { .. } | RangeError::Io(_) => ToolError::Failed(text),
    }
}

fn summary(path: &Path, offset: u64, limit: u64) -> String {
    let path = visible(&path.display().to_string());
    if offset == 0 {
        format!("read {path} (up to {limit} bytes)")
    } else {
        format!("read {path} (up to {limit} bytes from byte {offset})")
    }
}
