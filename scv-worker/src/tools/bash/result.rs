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
    if let Some(told) = end.out_of_memory() {
        fields.insert("out_of_memory", json!(told));
    }
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

#[cfg(test)]
mod tests {
    use shared::process::Exit;

    use super::*;

    #[test]
    fn a_command_that_was_killed_for_its_memory_is_told_as_such() {
        let shown = Shown { text: "building".into(), bytes: 8, truncated: false };
        let exit = Exit { code: Some(137), signal: None };
        let told = |oom_kills| {
            let end = RunEnd { exit, left: Vec::new(), oom_kills };
            let output = tell(Cause::Exit, Duration::from_secs(9), &end, &shown).unwrap();
            serde_json::from_str::<Value>(&output.text).unwrap()
        };
        assert_eq!(told(0).get("out_of_memory"), None);
        let sentence = "memory ran out meanwhile, and the kernel killed a process of this session";
        assert_eq!(told(1)["out_of_memory"], sentence);
    }
}
