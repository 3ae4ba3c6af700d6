//! What the model does: everything is in the prompt's text, so that any request tells which step of
//! which prompt it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use scv_tests::fakes::model::{Model, Reply, Request};
use serde_json::{Value, json};

use crate::truth::Truth;

/// The last words of every turn.
pub(crate) const ANSWER: &str = "Task number such is done.";

/// What is said before a call.
pub(crate) const BEFORE_A_CALL: &str = "I will do it.";

/// One that streams slowly has so many pieces, one every 20 ms.
const SLOW_PIECES: usize = 25;

/// The text of a prompt: its number, and what is to be done.
pub(crate) fn text(number: u64, steps: &[Step], slowly: bool) -> String {
    let steps: Vec<&str> = steps.iter().map(|step| step.name()).chain(slowly.then_some("slowly")).collect();
    format!("task {number} {}", steps.join(" "))
}

/// The number in a prompt's text.
pub(crate) fn number(text: &str) -> Option<u64> {
    text.strip_prefix("task ")?.split_whitespace().next()?.parse().ok()
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
    /// Says more than a line of the journal holds.
    Loud,
    /// Writes a file.
    Write,
    /// Hands work to an agent, which leaves a hidden child behind.
    Agent,
}

impl Step {
    /// All of them; the common ones more than once.
    const ALL: [Self; 9] = [
        Self::Quick,
        Self::Quick,
        Self::Quick,
        Self::Hides,
        Self::Stubborn,
        Self::Loud,
        Self::Write,
        Self::Write,
        Self::Agent,
    ];

    /// A few.
    pub(crate) fn some(random: &mut fastrand::Rng) -> Vec<Self> {
        (0..random.usize(..4)).map(|_| Self::ALL[random.usize(..Self::ALL.len())]).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Hides => "hides",
            Self::Stubborn => "stubborn",
            Self::Loud => "loud",
            Self::Write => "write",
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
            Self::Loud => format!("{note}; head -c 60000 /dev/zero | tr '\\0' x"),
            Self::Write => {
                let path = format!("note-{number}-{step}");
                return ("write", json!({"path": path, "content": format!("{number}.{step}\n"), "mode": "create"}));
            }
            Self::Agent => return ("agent", json!({"agent": "codex", "prompt": format!("help {number}.{step}")})),
        };
        ("bash", json!({"command": command}))
    }
}

/// What a request is about.
struct Task {
    number: u64,
    steps: Vec<Step>,
    slowly: bool,
    /// Calls that are done.
    done: usize,
    /// Where the file lies that came with the prompt.
    attached: Option<PathBuf>,
}

fn task(request: &Request) -> Option<Task> {
    let input = request.input();
    let text = |item: &Value| -> String {
        let parts = item["content"].as_array().cloned().unwrap_or_default();
        parts.iter().filter_map(|part| part["text"].as_str()).collect()
    };
    let (at, text) = input.iter().enumerate().rev().find_map(|(at, item)| {
        let text = if item["role"] == "user" { text(item) } else { return None };
        text.starts_with("task ").then_some((at, text))
    })?;
    let (words, attached) = text.split_once("\n[attached ").unwrap_or((&text, ""));
    let attached = attached.rsplit_once(", at ").map(|(_, path)| PathBuf::from(path.trim_end_matches(']')));
    Some(Task {
        number: number(words)?,
        steps: words.split_whitespace().filter_map(Step::of).collect(),
        slowly: words.ends_with(" slowly"),
        done: input[at..].iter().filter(|item| item["type"] == "function_call_output").count(),
        attached,
    })
}

/// Has the model follow its prompts, and notes what it was asked. `outside` is where a path of the
/// instance lies for us.
pub(crate) fn play(model: &Model, truth: &Arc<Truth>, outside: impl Fn(&Path) -> PathBuf + Send + 'static) {
    let truth = Arc::clone(truth);
    model.answer(move |request| {
        let Some(task) = task(request) else {
            truth.violation(format!("the model was asked something unknown: {}", request.prompt()));
            return Some(Reply::text("?"));
        };
        truth.asked((task.number, task.done), task.steps.len());
        came_along(&truth, &task, &outside);
        let reply = Reply::new();
        Some(match task.steps.get(task.done) {
            Some(step) => {
                let (name, arguments) = step.call(task.number, task.done);
                let reply = reply.deltas(BEFORE_A_CALL.split_inclusive(' '));
                reply.call_as(&format!("call-{}-{}", task.number, task.done), name, &arguments.to_string())
            }
            None if task.slowly => {
                let pieces = ANSWER.len().div_ceil(SLOW_PIECES).max(1);
                ANSWER.as_bytes().chunks(pieces).fold(reply, |reply, piece| {
                    reply.delta(&String::from_utf8_lossy(piece)).pause(Duration::from_millis(20))
                })
            }
            None => reply.delta(ANSWER),
        })
    });
}

/// The file that came with a prompt is there as it was sent.
fn came_along(truth: &Truth, task: &Task, outside: impl Fn(&Path) -> PathBuf) {
    let Some(sent) = truth.state().prompts.get(&task.number).map(|prompt| prompt.attached.clone()) else { return };
    let here = task.attached.as_ref().map(|path| std::fs::read_to_string(outside(path)).unwrap_or_default());
    if sent != here {
        truth.violation(format!("prompt {} came with {sent:?}, and the model sees {here:?}", task.number));
    }
}

/// The instance's configuration: an agent, and sessions that sleep soon. It follows the keys of the
/// provider.
pub(crate) fn settings(worker: &str) -> String {
    format!(
        "\n[session]\nhibernate_seconds = 1\n\n[supervisor]\nreconcile_seconds = 2\n\n\
         [agents.codex]\ncommand = \"{worker}\"\nargs = [\"--demo-agent\"]\n"
    )
}
