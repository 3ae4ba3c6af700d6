//! What the model reads about the tool: one schema, whichever way an agent runs.

use serde_json::{Map, Value, json};

use super::arguments::EFFORTS;
use crate::agents::{Agents, Offered, prompt};

/// What the tool is.
pub(super) const DESCRIPTION: &str = "Hand a self-contained task to another agent that works on this machine in its \
    own context. The call waits for the agent and returns a JSON object: agent, status (completed, failed, declined, \
    timeout, cancelled), reply, usage, exit_code, stderr_tail, truncated, where they apply error, hint, note and \
    fallback, and session and turn of a conversation that can go on.";

/// The schema of the arguments.
pub(super) fn parameters(agents: &Agents) -> Value {
    let offered = agents.offered();
    let default = agents.default_agent();
    let names: Vec<&str> = offered.iter().map(|agent| agent.adapter.name).collect();
    let (timeout, ceiling) = (agents.settings().timeout.as_secs(), agents.settings().max_timeout.as_secs());
    let mut properties = Map::new();
    let mut property = |name: &str, value: Value| properties.insert(name.to_owned(), value);
    property("agent", json!({"type": "string", "enum": names, "description": agent_description(offered, default)}));
    property(
        "prompt",
        json!({"type": "string", "description": "The task. The agent sees nothing of this conversation, so name the \
            goal, the files, the constraints and what to report back. It cannot start with -."}),
    );
    property(
        "cwd",
        json!({"type": "string", "description": "A directory inside the workspace, relative or absolute, such as a \
            project; the agent picks up the instructions and skills of that project. Omit it for the workspace root, or \
            to go on where the conversation works."}),
    );
    property(
        "timeout_seconds",
        json!({"type": "integer", "minimum": 1, "maximum": ceiling, "description": format!(
            "Limit of the call in seconds, {timeout} if omitted; raise it for long work such as builds, releases, or \
             landing a change.")}),
    );
    if offered.iter().any(Offered::takes_session) {
        property(
            "session",
            json!({"type": "string", "description": "A conversation handle from an earlier result, such as the value of \
                its session field: continues that conversation with the agent's own context. Omit it to start a new \
                one."}),
        );
    }
    if offered.iter().any(Offered::takes_model) {
        property(
            "model",
            json!({"type": "string", "maxLength": 128, "description": "A model of the chosen agent. Set it when the \
                user asks for one or when the work matches the user's note on the agent; omitted, the agent uses its \
                own default."}),
        );
    }
    if offered.iter().any(Offered::takes_effort) {
        property(
            "effort",
            json!({"type": "string", "enum": EFFORTS, "description": "Reasoning effort of the chosen agent. Set it when \
                the user asks for one or when the work matches the user's note on the agent; omitted, the agent uses its \
                own default."}),
        );
    }
    let required = if default.is_some() { json!(["prompt"]) } else { json!(["agent", "prompt"]) };
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn agent_description(offered: &[Offered], default: Option<&Offered>) -> String {
    let mut text = match default {
        Some(default) => format!(
            "Which agent runs the call. Omitted, it is the one whose conversation session names, else {}, the first \
             that the user prefers.",
            default.adapter.name
        ),
        None => "Which agent runs the call. A call with session may omit it: the handle names the agent.".to_owned(),
    };
    for agent in offered {
        text.push('\n');
        text.push_str(&line(agent));
    }
    text
}

/// One agent: its value, its product, what it offers, what it takes, and the user's own words.
fn line(agent: &Offered) -> String {
    let adapter = agent.adapter;
    let mut line = format!("- {} ({}): {}. {}", adapter.name, adapter.product, adapter.about, takes(agent));
    if let Some(wish) = prompt::wish(agent) {
        line.push(' ');
        line.push_str(&wish);
    }
    line
}

fn takes(agent: &Offered) -> String {
    let mut options = Vec::new();
    if agent.takes_model() {
        options.push(format!("model ({})", agent.adapter.models));
    }
    if agent.takes_effort() {
        options.push("effort".to_owned());
    }
    if agent.takes_session() {
        options.push("session".to_owned());
    }
    match &options[..] {
        [] => "Takes no model, effort, or session.".to_owned(),
        [one] => format!("Takes {one}."),
        [one, two] => format!("Takes {one} and {two}."),
        [first @ .., last] => format!("Takes {}, and {last}.", first.join(", ")),
    }
}
