//! No tool ran twice, and what was reported as done was done.

use std::collections::BTreeMap;

use crate::actors::Stage;
use crate::truth::Call;

/// Reads every ledger and starts it anew.
pub(super) fn each_call_once(stage: &Stage) {
    let mut ran: BTreeMap<Call, usize> = BTreeMap::new();
    let mut written = Vec::new();
    let work = stage.world.outside(&stage.world.work());
    for dir in std::fs::read_dir(work).into_iter().flatten().flatten() {
        let ledger = dir.path().join("ledger");
        for line in std::fs::read_to_string(&ledger).unwrap_or_default().lines() {
            if let Some(call) = call(line) {
                *ran.entry(call).or_default() += 1;
            }
        }
        let _ = std::fs::remove_file(ledger);
        for file in std::fs::read_dir(dir.path()).into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if let Some(name) = name.strip_prefix("note-") {
                let text = std::fs::read_to_string(file.path()).unwrap_or_default();
                // One that was killed while it wrote left nothing, or all of it: never a part.
                if text.trim_end() != name.replace('-', ".") {
                    stage.truth.violation(format!("note-{name} says {text:?}"));
                }
                written.extend(call(text.trim_end()));
            }
            if name.starts_with("note-") || name.starts_with("attached-") {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
    let wrong: Vec<String> = {
        let known = stage.truth.state();
        let late = ran.keys().chain(&written).filter(|(number, _)| !known.prompts.contains_key(number));
        let late = late.map(|call| format!("call {call:?} ran after its turn was over"));
        let twice =
            ran.iter().filter(|(_, times)| **times > 1).map(|(call, times)| format!("{call:?} ran {times} times"));
        let never = known.succeeded.iter().filter(|call| !ran.contains_key(call) && !written.contains(call));
        let never = never.map(|call| format!("call {call:?} was reported as done and never ran"));
        let unasked = ran.keys().filter(|call| !known.asked.contains_key(call));
        let unasked = unasked.map(|call| format!("call {call:?} ran, and no model asked for it"));
        late.chain(twice).chain(never).chain(unasked).collect()
    };
    stage
        .truth
        .state()
        .counts
        .entry("calls in the ledger")
        .and_modify(|n| *n += ran.len() as u64)
        .or_insert(ran.len() as u64);
    for wrong in wrong {
        stage.truth.violation(wrong);
    }
}

fn call(line: &str) -> Option<Call> {
    let (number, step) = line.split_once('.')?;
    Some((number.parse().ok()?, step.parse().ok()?))
}
