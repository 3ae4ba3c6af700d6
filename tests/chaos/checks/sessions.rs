//! The list of sessions agrees with what is so.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::soon;
use crate::actors::Stage;
use crate::faults::control;

/// Nothing is at work, nothing is wanted, and what was removed stays removed.
pub(super) fn agree(stage: &Stage) {
    soon(stage, || wrong(stage));
    stage.truth.state().removed.clear();
}

fn wrong(stage: &Stage) -> Option<String> {
    let mut listed = BTreeSet::new();
    for page in 0.. {
        let command = json!({"action": "sessions", "all": true, "page": page});
        let Some(status) = control(&*stage.world, &command) else { return Some("the list does not come".into()) };
        for entry in status["sessions"]["entries"].as_array().into_iter().flatten() {
            if ["working", "waiting", "crashed"].contains(&entry["state"].as_str().unwrap_or_default()) {
                return Some(format!("nothing is under way, and the list says {entry}"));
            }
            listed.insert(entry["id"].as_str().unwrap_or_default().to_owned());
        }
        if status["sessions"]["next_page"] == Value::Null {
            break;
        }
    }
    let known = stage.truth.state();
    let back =
        known.removed.iter().find(|id| listed.contains(*id) || stage.world.state().join("sessions").join(id).exists());
    if let Some(back) = back {
        return Some(format!("session {back} was removed and is there"));
    }
    let wanted = std::fs::read_dir(stage.world.state().join("wanted")).into_iter().flatten().flatten().count();
    (wanted > 0).then(|| format!("nothing is under way, and {wanted} sessions are wanted"))
}
