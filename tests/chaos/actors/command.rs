//! Somebody who types `scv exec`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Shared, Stage};
use crate::script::{self, Step};

/// A command is over by then, whatever becomes of its session.
const OVER_WITHIN: Duration = Duration::from_secs(90);

pub(super) fn live(number: usize, stage: &Stage, mut random: fastrand::Rng, shared: &Arc<Shared>) {
    let cwd = stage.world.work().join(format!("command-{number}"));
    stage.world.make_dir(&cwd);
    while !shared.is_over() {
        std::thread::sleep(Duration::from_millis(random.u64(50..700)));
        if shared.rests() {
            continue;
        }
        shared.busy(1);
        let prompt = stage.truth.prompt("", None);
        let text = script::text(prompt, &Step::some(&mut random), random.bool());
        let json = random.bool();
        let args: &[&str] = if json { &["exec", "--yes", "--json", &text] } else { &["exec", "--yes", "-q", &text] };
        let began = Instant::now();
        let mut program = stage.world.scv(&cwd, args);
        while !program.ended() {
            if began.elapsed() > OVER_WITHIN {
                stage.truth.violation(format!("`scv exec` of prompt {prompt} is not over after {OVER_WITHIN:?}"));
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = program.wait();
        let how = output.status.to_string();
        stage
            .truth
            .log(&format!("command-{number}"), &json!({"prompt": prompt, "ended": how, "stderr": output.stderr}));
        let succeeded = output.status.success();
        if succeeded && answers(&output.stdout, json) != [script::ANSWER] {
            stage.truth.violation(format!("`scv exec` of prompt {prompt} printed {:?}", output.stdout));
        }
        stage.truth.count("commands");
        stage.truth.ended(prompt, "exec", if succeeded { "turn.completed" } else { "turn.failed exec" });
        shared.busy(0);
    }
}

/// The last answers in what a command printed; what was said before calls is left out.
fn answers(stdout: &str, json: bool) -> Vec<String> {
    let text = |line: &str| {
        if !json {
            return Some(line.trim_end().to_owned());
        }
        let event: Value = serde_json::from_str(line).ok()?;
        (event["type"] == "assistant.completed").then(|| event["content"].as_str().map(str::to_owned))?
    };
    stdout.lines().filter_map(text).filter(|text| !text.is_empty() && *text != script::BEFORE_A_CALL).collect()
}
