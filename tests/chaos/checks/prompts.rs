//! Every prompt that was taken ended, and in one turn.

use crate::actors::Stage;

/// Looks at all prompts and forgets them: what comes of one later is a violation of its own.
pub(super) fn each_ended_once(stage: &Stage) {
    let mut wrong = Vec::new();
    {
        let mut known = stage.truth.state();
        for (number, prompt) in &known.prompts {
            let ends = &prompt.ends;
            if !prompt.is_over() || ends.len() > 1 || (prompt.withdrawn && !ends.is_empty()) {
                wrong.push(format!(
                    "prompt {number} of session {}: ended as {ends:?}, taken back: {}",
                    prompt.session, prompt.withdrawn
                ));
            }
            let completed = ends.values().any(|end| end == "turn.completed");
            let asked = known.asked.range((*number, 0)..=(*number, usize::MAX)).count();
            if completed && asked != prompt.calls + 1 {
                wrong.push(format!("prompt {number} was completed after {asked} requests for {} calls", prompt.calls));
            }
        }
        known.prompts.clear();
        known.asked.clear();
        known.succeeded.clear();
    }
    for wrong in wrong {
        stage.truth.violation(wrong);
    }
}
