//! What the model does: everything is in the prompt's text, so that any request tells which step of
//! which prompt it is.

use std::sync::Arc;

use scv_tests::TestEnv;
use scv_tests::env::binary_path;
use scv_tests::fakes::model::{Model, Reply, Request};
use serde_json::{Value, json};

use crate::truth::Truth;

/// The text of a prompt: its number, and what is to be done.
pub(crate) fn text(number: u64, steps: &[Step]) -> String {
    let steps: Vec<&str> = steps.iter().map(|step| step.name()).collect();
    format!("task {number} {}", steps.join(" "))
}

/// One call of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Writes to the ledger and takes a moment.
    Quick,
    /// Leaves a hidden child behind.
    Hides,
    /// Ignores SIGTERM for a while.
    Stubborn,
    /// Hands work to an agent, which leaves a hidden child behind.
    Agent,
}

impl Step {
    /// All of them; the common ones more than once.
    pub(crate) const ALL: [Self; 6] = [Self::Quick, Self::Quick, Self::Quick, Self::Hides, Self::Stubborn, Self::Agent];

    fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Hides => "hides",
            Self::Stubborn => "stubborn",
            Self::Agent => "agent",
        }
    }

    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }

    fn call(self, number: u64, step: usize) -> (&'static str, Value) {
        // First of all: what has started is in the ledger, however it ends.
        let note = format!("echo {number}.{step} >> ledger");
        let command = match self {
            Self::Quick => format!("{note}; sleep 0.05"),
            Self::Hides => format!("{note}; setsid -f env -i /bin/sleep 1000; sleep 0.1"),
            Self::Stubborn => format!("{note}; trap '' TERM; sleep 0.4"),
            Self::Agent => return ("agent", json!({"agent": "codex", "prompt": format!("help {number}.{step}")})),
        };
        ("bash", json!({"command": command}))
    }
}

/// What a request is about.
fn task(request: &Request) -> Option<(u64, Vec<Step>, usize)> {
    let input = request.input();
    let text = |item: &Value| -> String {
        let parts = item["content"].as_array().cloned().unwrap_or_default();
        parts.iter().filter_map(|part| part["text"].as_str()).collect()
    };
    let (at, words) = input.iter().enumerate().rev().find_map(|(at, item)| {
        let text = if item["role"] == "user" { text(item) } else { return None };
        text.starts_with("task ").then_some((at, text))
    })?;
    let mut words = words.split_whitespace().skip(1);
    let number = words.next()?.parse().ok()?;
    let steps = words.filter_map(Step::of).collect();
    let done = input[at..].iter().filter(|item| item["type"] == "function_call_output").count();
    Some((number, steps, done))
}

/// Has the model follow its prompts, and notes what it was asked.
pub(crate) fn play(model: &Model, truth: &Arc<Truth>) {
    let truth = Arc::clone(truth);
    model.answer(move |request| {
        let Some((number, steps, done)) = task(request) else {
            truth.violation(format!("the model was asked something unknown: {}", request.prompt()));
            return Some(Reply::text("?"));
        };
        let asked = {
            let mut state = truth.state();
            let asked = state.asked.entry((number, done)).or_default();
            *asked += 1;
            *asked
        };
        if asked > 1 {
            truth.violation(format!("the model was asked for step {done} of prompt {number} again"));
        }
        Some(match steps.get(done) {
            Some(step) => {
                let (name, arguments) = step.call(number, done);
                let reply = Reply::new().deltas(["I ", "will ", "do ", "it. "]);
                reply.call_as(&format!("call-{number}-{done}"), name, &arguments.to_string())
            }
            None => Reply::new().deltas(["Task ", "number ", "such ", "is ", "done."]),
        })
    });
}

/// The instance's configuration: the model, an agent, and sessions that sleep soon.
pub(crate) fn configure(env: &TestEnv, model: &Model) {
    let worker = binary_path("scv-worker");
    env.configure(
        &model.url(),
        &format!(
            "[session]\nhibernate_seconds = 2\n\n[supervisor]\nreconcile_seconds = 2\n\n\
             [agents.codex]\ncommand = \"{}\"\nargs = [\"--demo-agent\"]\n",
            worker.display()
        ),
    );
}
