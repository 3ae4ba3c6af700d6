//! What is refused before anybody is asked, and what is shown.

use super::super::Arguments;
use super::*;
use shared::protocol::server::Risk;

/// What is said where another agent could help.
const OTHERS: &str = "This agent could not run: it is missing, signed out, or its provider returned an error. Other \
                      agents are available: other. Call agent again with one of them.";

#[test]
fn calls_are_refused_before_anything_starts() {
    let bench = Setup::default().bench("exit 1");
    let table = [
        (json!({"agent": "codex"}), "missing field `prompt`"),
        (json!({"agent": "codex", "prompt": "x", "background": true}), "unknown field `background`"),
        (json!({"agent": "codex", "prompt": "x", "args": ["--yolo"]}), "unknown field `args`"),
        (json!({"agent": "codex", "prompt": "x", "command": "/bin/sh"}), "unknown field `command`"),
        (json!({"agent": "codex", "prompt": " "}), "prompt is empty"),
        (json!({"agent": "codex", "prompt": "-h"}), "prompt starts with -"),
        (json!({"agent": "codex", "prompt": "a\0b"}), "prompt holds a NUL"),
        (json!({"agent": "codex", "prompt": "x".repeat(131_072)}), "prompt has 131072 bytes"),
        (
            json!({"prompt": "x"}),
            "name the agent: the user prefers none of the agents this session offers ([agent] prefer); choose one of: \
             codex",
        ),
        (
            json!({"prompt": "x", "agent": "zcode"}),
            "agent \"zcode\" is not offered in this session; choose one of: codex",
        ),
        (json!({"agent": "codex", "prompt": "x", "model": "-m"}), "model \"-m\" is not allowed"),
        (json!({"agent": "codex", "prompt": "x", "model": "@f"}), "model \"@f\" is not allowed"),
        (json!({"agent": "codex", "prompt": "x", "model": "a b"}), "model \"a b\" is not allowed"),
        (json!({"agent": "codex", "prompt": "x", "model": "m".repeat(129)}), "is not allowed"),
        (json!({"agent": "codex", "prompt": "x", "effort": "silly"}), "use one of low, medium, high, xhigh, max"),
        (
            json!({"agent": "codex", "prompt": "x", "timeout_seconds": 14_401}),
            "above the ceiling of 14400 (tools.max_timeout_seconds)",
        ),
        (json!({"agent": "codex", "prompt": "x", "timeout_seconds": 0}), "at least 1"),
        (json!({"agent": "codex", "prompt": "x", "session": "codex-7"}), "no conversation \"codex-7\" in this session"),
    ];
    for (arguments, expected) in table {
        let refusal = bench.refusal(arguments.clone());
        assert!(refusal.contains(expected), "{arguments}: {refusal}");
    }
}

#[test]
fn an_option_that_an_agent_does_not_take_is_named() {
    let mut setup = Setup::default();
    setup.config.agents.get_mut("codex").unwrap().model_args = vec![];
    let refusal = setup.bench("").refusal(json!({"agent": "codex", "prompt": "x", "model": "m"}));
    assert_eq!(refusal, "codex does not take model; no agent of this session does. Omit model");
    let mut setup = Setup { others: vec![other()], ..Setup::default() };
    setup.config.agents.get_mut("codex").unwrap().model_args = vec![];
    let bench = setup.bench("");
    assert_eq!(
        bench.refusal(json!({"agent": "codex", "prompt": "x", "model": "m"})),
        "codex does not take model; these agents do: other. Omit model, or call one of them"
    );
    assert_eq!(
        bench.refusal(json!({"agent": "other", "prompt": "x", "session": "codex-1"})),
        "other does not take session; these agents do: codex. Omit session, or call one of them"
    );
}

#[test]
fn a_call_that_names_no_agent_goes_to_the_first_preferred_one_on_offer() {
    for (prefer, runs) in [(&["claude", "codex", "other"][..], "codex"), (&["other", "codex"], "other")] {
        let mut setup = Setup { others: vec![other()], ..Setup::default() };
        setup.config.agent.prefer = prefer.iter().map(|name| (*name).to_owned()).collect();
        let bench = setup.bench("");
        let call = Arguments::parse(json!({"prompt": "x"})).unwrap();
        assert_eq!(bench.tool.choose(&call).unwrap().adapter.name, runs);
        let call = Arguments::parse(json!({"prompt": "x", "agent": "codex"})).unwrap();
        assert_eq!(bench.tool.choose(&call).unwrap().adapter.name, "codex", "a named one comes first");
    }
}

#[test]
fn a_blank_option_is_omitted() {
    let mut setup = Setup::default();
    setup.config.agent.prefer = vec!["codex".into()];
    let bench = setup.bench("");
    let blank = json!({"prompt": "x", "agent": "", "cwd": " ", "session": "", "model": "", "effort": "", "timeout_seconds": null});
    let prepared = bench.tool.prepare(blank).unwrap();
    assert_eq!(prepared.limit, Some(Duration::from_hours(1)));
}

#[test]
fn an_approval_shows_everything_that_will_run() {
    let mut setup = Setup::default();
    full(&mut setup.config);
    let bench = setup.bench("");
    let long = "y".repeat(10_000);
    let arguments =
        json!({"agent": "codex", "prompt": format!("do {long}"), "cwd": "sub", "model": "m", "timeout_seconds": 60});
    let prepared = bench.tool.prepare(arguments).unwrap();
    assert_eq!(prepared.risk, Risk::Delegate);
    let summary = &prepared.summary;
    let script = bench.dir.path().join("agent.sh");
    let start = format!(
        "agent codex: Launch /bin/bash with args [\"{}\",\"--dangerously-bypass-approvals-and-sandbox\",\"-c\",\
         \"web_search=\\\"live\\\"\",\"--json\",\"-o\",\"",
        script.display()
    );
    assert!(summary.starts_with(&start), "{summary}");
    for part in ["\"-m\",\"m\",\"<prompt>\"]", "in \"sub\"", "for at most 60 s", "FULL PERMISSIONS", "Prompt: do yyy"] {
        assert!(summary.contains(part), "{part:?} is not in {summary}");
    }
    assert!(summary.len() < 4096, "the prompt is cut");
    drop(prepared);
    assert!(!Setup::default().bench("").tool.prepare(call("x")).unwrap().summary.contains("FULL"));
}

#[test]
fn a_program_that_was_removed_is_told_before_approval() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("codex");
    std::os::unix::fs::symlink("/bin/bash", &program).unwrap();
    let mut setup = Setup::default();
    setup.config.agents.get_mut("codex").unwrap().command = program.to_str().unwrap().into();
    setup.others.push(other());
    let bench = setup.bench("");
    std::fs::remove_file(&program).unwrap();
    let Some(ToolError::Unavailable(told)) = bench.tool.prepare(call("x")).err() else { panic!("it is gone") };
    assert!(told.ends_with(OTHERS), "{told}");
}

#[test]
fn a_program_that_does_not_start_is_told_with_the_other_agents() {
    use std::os::unix::fs::PermissionsExt as _;
    as_worker(async || {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("codex");
        std::fs::write(&program, b"\x7fELF, but no program").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut setup = Setup { others: vec![other()], ..Setup::default() };
        setup.config.agents.get_mut("codex").unwrap().command = program.to_str().unwrap().into();
        let bench = setup.bench("");
        let Err(ToolError::Unavailable(told)) = bench.run(call("x")).await else { panic!("it cannot run") };
        assert!(told.starts_with(&format!("cannot start {} for agent codex: ", program.display())), "{told}");
        assert!(told.ends_with(OTHERS), "{told}");
    });
}
