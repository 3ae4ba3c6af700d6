//! What the model gets of a command.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use shared::process::RunEnd;

use super::Cause;
use crate::tools::captured::Shown;
use crate::tools::{Output, ToolError};

/// No more of what was left running is named.
const NAMED: usize = 16;

/// The result: a JSON object with its fields sorted, in an error too.
pub(super) fn tell(cause: Cause, limit: Duration, end: &RunEnd, shown: &Shown) -> Result<Output, ToolError> {
    let truncated = shown.truncated;
    let mut fields = BTreeMap::from([
        ("exit_status", json!(end.exit.to_string())),
        ("output", json!(shown.text)),
        ("output_bytes", json!(shown.bytes)),
        ("truncated", json!(truncated)),
    ]);
    let seconds = limit.as_secs();
    match cause {
        Cause::Cancelled => {
            fields.insert("error", json!("cancelled: the command and all that it started was ended"));
            Err(ToolError::Cancelled(text(&fields)))
        }
        Cause::TimeLimit => {
            let error = format!("killed at its time limit of {seconds} s, with all that it started");
            fields.insert("error", json!(error));
            Err(ToolError::Limit(text(&fields)))
        }
        Cause::Exit => {
            if !end.left.is_empty() {
                fields.insert("ended", json!(left(end)));
            }
            Ok(Output { text: text(&fields), success: end.exit.success(), truncated })
        }
    }
}

/// What the command left running, which was ended.
fn left(end: &RunEnd) -> Vec<String> {
    let mut names: Vec<String> =
        end.left.iter().take(NAMED).map(|ended| format!("{} (pid {})", ended.name, ended.pid)).collect();
    if end.left.len() > NAMED {
        names.push(format!("and {} more", end.left.len() - NAMED));
    }
    names
}

fn text(fields: &BTreeMap<&str, Value>) -> String {
    serde_json::to_string(fields).unwrap_or_default()
}
