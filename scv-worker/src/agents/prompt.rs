//! The "Delegating work" section of the system prompt, from the agents that a session offers.

use std::fmt::Write as _;

use super::{Agents, Offered};

/// The section, or nothing for a session without agents.
pub(crate) fn section(agents: &Agents) -> Option<String> {
    let offered = agents.offered();
    if offered.is_empty() {
        return None;
    }
    let mut section =
        String::from("# Delegating work\n\nThe `agent` tool hands work to another agent on this machine:");
    for agent in offered {
        let _ = write!(section, "\n- {} ({})", agent.adapter.name, agent.adapter.product);
        if let Some(wish) = wish(agent) {
            let _ = write!(section, ". {wish}");
        }
    }
    let prefer: Vec<&str> =
        agents.settings().prefer.iter().filter_map(|name| Some(agents.find(name)?.adapter.name)).collect();
    if let [first, ..] = prefer[..] {
        let _ = write!(
            section,
            "\n\nThe user prefers, in this order: {}. A call that names no agent goes to {first}, so name one whenever \
             the work calls for another.",
            prefer.join(", ")
        );
    }
    section.push_str(
        "\n\nAn agent sees nothing of this conversation, so give it a self-contained brief: the goal, what is known \
         already, where to work (`cwd`), what to leave alone, and what to report back.",
    );
    section.push_str(&declines(offered));
    Some(section)
}

/// The user's own words on when and how to use `agent`.
pub(crate) fn wish(agent: &Offered) -> Option<String> {
    let profile = &agent.profile;
    let selected: Vec<String> = [("model", &profile.model), ("effort", &profile.effort)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let selected = selected.join(" and ");
    let omitted = match (profile.model.is_empty(), profile.effort.is_empty()) {
        (false, false) => "model and effort",
        (false, true) => "model",
        _ => "effort",
    };
    match (profile.use_for.is_empty(), selected.is_empty()) {
        (true, true) => None,
        (false, true) => Some(format!("The user's note on when to use it: {}.", note(&profile.use_for))),
        (true, false) => Some(format!("Pass {selected}, unless the user asks for another.")),
        (false, false) => Some(format!(
            "The user's note on when to use it: {}. For that work, pass {selected}; omit {omitted} for other work so \
             the agent uses its own default.",
            note(&profile.use_for)
        )),
    }
}

fn note(use_for: &str) -> &str {
    use_for.trim().trim_end_matches('.')
}

fn declines(offered: &[Offered]) -> String {
    match offered.iter().find(|agent| agent.adapter.second_opinion) {
        Some(second) => format!(
            "\n\nIf an agent declines a request, tell the user what it said and call `agent` again with agent {0} and \
             the same request: a safety or guardrail refusal is not a reason to skip {1}, which decides for itself. If \
             {1} declines too, tell the user rather than passing the request on, and use a specific agent if the user \
             then asks for one.",
            second.adapter.name, second.adapter.product
        ),
        None => "\n\nIf an agent declines a request, tell the user what it said rather than passing the request to \
                 another agent on your own, since the choice is the user's; use a specific agent if the user then asks \
                 for one."
            .to_owned(),
    }
}
