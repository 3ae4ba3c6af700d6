//! Journals are whole lines, and each tells one story: numbers go up, a prompt begins once, a turn
//! ends once, a call starts and ends once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::actors::Stage;

/// Reads all of them.
pub(super) fn tell_the_same(stage: &Stage) {
    for session in std::fs::read_dir(stage.world.state().join("sessions")).into_iter().flatten().flatten() {
        let dir = session.path();
        let journal = std::fs::read(dir.join("journal.jsonl")).unwrap_or_default();
        if let Err(wrong) = read(&dir, &journal) {
            stage.truth.violation(format!("the journal of {}: {wrong}", session.file_name().to_string_lossy()));
        }
    }
}

fn read(dir: &Path, journal: &[u8]) -> Result<(), String> {
    let mut last = 0;
    let mut begun: BTreeSet<String> = BTreeSet::new();
    let mut open: Option<String> = None;
    let mut calls: BTreeMap<(String, String), usize> = BTreeMap::new();
    // A torn tail is cut by whoever opens it next.
    for line in journal.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let mut record: Value = serde_json::from_slice(line).map_err(|error| format!("{error} in a whole line"))?;
        if record["record"] == "blob" {
            let name = record["sha256"].as_str().unwrap_or_default();
            let blob = std::fs::read(dir.join("blobs").join(name)).map_err(|error| format!("blob {name}: {error}"))?;
            record = serde_json::from_slice(&blob).map_err(|error| format!("{error} in blob {name}"))?;
        }
        let event = &record["event"];
        if let Some(seq) = event["seq"].as_u64() {
            if seq <= last {
                return Err(format!("number {seq} after {last}"));
            }
            last = seq;
        }
        let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let turn = text(event, "turn_id");
        match (record["record"].as_str(), event["type"].as_str()) {
            (Some("begin"), _) => {
                if let Some(open) = &open {
                    return Err(format!("a turn begins while {open} is open"));
                }
                if !begun.insert(text(&record, "queue_id")) {
                    return Err(format!("prompt {} begins again", record["queue_id"]));
                }
                open = Some(text(&record, "turn_id"));
            }
            (_, Some("turn.completed" | "turn.cancelled" | "turn.failed")) if open.take().as_ref() != Some(&turn) => {
                return Err(format!("turn {turn} ends and was not open"));
            }
            (_, Some(kind @ ("tool.started" | "tool.completed"))) => {
                let times = calls.entry((kind.to_owned(), text(event, "call_id"))).or_default();
                *times += 1;
                if *times > 1 {
                    return Err(format!("{kind} of {} comes twice", event["call_id"]));
                }
            }
            _ => {}
        }
    }
    match open {
        Some(open) => Err(format!("turn {open} has not ended, and nothing is under way")),
        None => Ok(()),
    }
}
