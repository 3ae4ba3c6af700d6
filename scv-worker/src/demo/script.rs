//! What the demo's model says: a pure function of the request.

use serde_json::{Value, json};

/// What one response holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    /// Streamed word by word.
    pub text: &'static str,
    /// A call, if the model makes one.
    pub call: Option<(&'static str, Value)>,
}

/// The prompt whose turn is cut short by a kill; the demo sends it.
const CRASH: &str = "long";

/// The prompt after the kill.
const AFTER: &str = "remember";

/// The answer to a request with these input items.
pub(super) fn answer(input: &[Value]) -> Answer {
    let prompt_at = input.iter().rposition(|item| item["role"] == "user").unwrap_or(0);
    let prompt = input.get(prompt_at).map(Value::to_string).unwrap_or_default();
    let outputs = input[prompt_at..].iter().filter(|item| item["type"] == "function_call_output").count();
    if prompt.contains(CRASH) {
        return call("This will take a while.", "bash", json!({"command": "echo started; sleep 600"}));
    }
    if prompt.contains(AFTER) {
        return say("I do: you asked me to read notes.txt, a program wrote its lines, another agent looked around, \
                    and the long command was interrupted when my process was killed. Nothing of it was lost.");
    }
    match outputs {
        0 => call("I read the notes first.", "read", json!({"path": "notes.txt"})),
        1 => call(
            "Now I write a summary beside them.",
            "write",
            json!({"path": "summary.md", "mode": "create", "content": "# Summary\n\nThree things to do today.\n"}),
        ),
        2 => call(
            "A command that takes a moment, to see its progress:",
            "bash",
            json!({"command": "for n in 1 2 3 4; do echo \"step $n of 4\"; sleep 0.4; done; wc -l notes.txt summary.md"}),
        ),
        3 => call(
            "The rest is work for another agent.",
            "agent",
            json!({"agent": super::agent::ADAPTER, "prompt": "Look around and say what you see."}),
        ),
        _ => {
            say("Done: the notes are read, the summary is written, the command ran, and the other agent has reported.")
        }
    }
}

fn say(text: &'static str) -> Answer {
    Answer { text, call: None }
}

fn call(text: &'static str, tool: &'static str, arguments: Value) -> Answer {
    Answer { text, call: Some((tool, arguments)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_goes_on_with_each_result() {
        let mut input = vec![json!({"role": "user", "content": "go"})];
        let mut tools = Vec::new();
        while let Some((tool, _)) = answer(&input).call {
            tools.push(tool);
            input.push(json!({"type": "function_call_output", "output": "x"}));
        }
        assert_eq!(tools, ["read", "write", "bash", "agent"]);
    }
}
