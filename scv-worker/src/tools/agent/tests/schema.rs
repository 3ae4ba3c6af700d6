//! What the model reads.

use super::*;
use crate::agents::prompt;

fn spec(setup: Setup) -> Value {
    setup.bench("").tool.spec().parameters
}

fn noted(config: &mut Config) {
    let codex = config.agents.get_mut("codex").unwrap();
    codex.use_for = "coding".into();
    codex.model = "gpt-5.5".into();
    codex.effort = "high".into();
}

#[test]
fn the_schema_offers_what_some_agent_takes() {
    let schema = spec(Setup::default());
    assert_eq!(schema["properties"]["agent"]["enum"], json!(["codex"]));
    assert_eq!(schema["properties"]["timeout_seconds"]["maximum"], 14_400);
    assert!(schema["properties"]["timeout_seconds"]["description"].as_str().unwrap().contains("3600 if omitted"));
    assert_eq!(schema["required"], json!(["agent", "prompt"]));
    let names: Vec<_> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["agent", "cwd", "effort", "model", "prompt", "session", "timeout_seconds"]);

    let mut setup = Setup::default();
    let codex = setup.config.agents.get_mut("codex").unwrap();
    (codex.model_args, codex.effort_args) = (vec![], vec![]);
    setup.config.agent.prefer = vec!["claude".into(), "codex".into()];
    let schema = spec(setup);
    assert_eq!(schema["required"], json!(["prompt"]), "a preferred agent is the default");
    assert_eq!(schema["properties"].get("model"), None);
    assert_eq!(schema["properties"].get("effort"), None);
}

#[test]
fn the_line_of_an_agent_holds_the_users_note() {
    let mut setup = Setup::default();
    noted(&mut setup.config);
    let schema = spec(setup);
    let description = schema["properties"]["agent"]["description"].as_str().unwrap();
    assert!(
        description.ends_with(
            "\n- codex (Codex): OpenAI's coding agent; it reads, edits, and runs code in a project, with live web \
             search under full permissions. Takes model (OpenAI model ID from the Codex configuration; not a Claude \
             alias), effort, and session. The user's note on when to use it: coding. For that work, pass model gpt-5.5 \
             and effort high; omit model and effort for other work so the agent uses its own default."
        ),
        "{description}"
    );
}

#[test]
fn a_default_without_a_note_applies_to_all_work() {
    let mut setup = Setup::default();
    setup.config.agents.get_mut("codex").unwrap().model = "gpt-5.5".into();
    let schema = spec(setup);
    let description = schema["properties"]["agent"]["description"].as_str().unwrap();
    assert!(description.ends_with("session. Pass model gpt-5.5, unless the user asks for another."), "{description}");
}

#[test]
fn the_system_prompt_names_the_agents_and_the_preference() {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = Setup::default();
    noted(&mut setup.config);
    setup.config.agent.prefer = vec!["grok".into(), "codex".into()];
    let (agents, ..) = setup.agents(dir.path(), "");
    let section = prompt::section(&agents).unwrap();
    for part in [
        "codex (Codex). The user's note on when to use it: coding.",
        "prefers, in this order: codex. A call that names no agent goes to codex",
        "self-contained brief",
        "If an agent declines a request, tell the user",
    ] {
        assert!(section.contains(part), "{part:?} is not in {section}");
    }
}

#[test]
fn what_is_not_installed_or_too_deep_is_not_offered() {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = Setup::default();
    setup.config.agents.get_mut("codex").unwrap().transport = shared::config::Transport::Acp;
    let (agents, ..) = setup.agents(dir.path(), "");
    assert!(AgentTool::new(agents).is_none(), "nothing here speaks that");
    let mut setup = Setup::default();
    setup.config.agents.get_mut("codex").unwrap().command = "no-such-program".into();
    let (agents, ..) = setup.agents(dir.path(), "");
    assert!(prompt::section(&agents).is_none() && AgentTool::new(agents).is_none());
    let (agents, ..) = Setup { depth: 2, ..Setup::default() }.agents(dir.path(), "");
    assert!(AgentTool::new(agents).is_none());
    let (agents, ..) = Setup { depth: 1, ..Setup::default() }.agents(dir.path(), "");
    assert!(AgentTool::new(agents).is_some());
}
