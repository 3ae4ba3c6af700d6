//! A turn that goes well: what the model gets, what a person sees, and what runs meanwhile.

use std::os::unix::fs::PermissionsExt as _;

use scv_tests::fakes::model::Gate;
use scv_tests::talk::of_type;

use super::*;

#[test]
fn exec_hands_a_task_over_and_the_model_gets_one_structured_result() {
    let (env, model) = installed("");
    model.push(hand_over("say hello", &json!({})));
    model.push(Reply::text("Codex says hello."));
    codex_answers(&model, [Reply::text("hello from Codex").usage(20, 7, 0)]);
    let output = env.scv(&["exec", "--yes", "ask Codex"]);
    assert_eq!(output.exits(0).stdout, "Codex says hello.\n");
    assert_eq!(codex_requests(&model)[0].prompt(), "say hello");
    let tmp = env.layout().agent_home("codex").join("tmp");
    let left = fs::read_dir(&tmp).unwrap().flatten().map(|entry| entry.file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with("last-")), "its last message is removed");
    let mut result = told(&model);
    result.as_object_mut().unwrap().remove("stderr_tail").expect("what Codex says of its own accord");
    let expected = json!({
        "agent": "codex", "exit_code": 0, "reply": "hello from Codex", "session": "codex-1", "status": "completed",
        "truncated": false, "turn": 1, "usage": {"input_tokens": 20, "output_tokens": 7},
    });
    assert_eq!(result, expected);
    assert_gone(&env);
    env.finish();
}

#[test]
fn what_it_does_is_progress_and_never_in_history_or_result() {
    let mut talk = talk(FULL);
    // The silence after each command lets its line through: at most one event in half a second.
    codex_answers(
        &talk.model,
        [shell("echo out-$((40+2)); API_TOKEN=abc123 sleep 1; false"), shell("sleep 1; true"), Reply::text("made")],
    );
    talk.model.push(hand_over("work", &json!({})));
    talk.model.push(Reply::text("done"));
    let events = talk.turn("go");
    let place = |kind: &str| events.iter().position(|event| event["type"] == kind).unwrap();
    let lines: Vec<Value> = of_type(&events, "tool.progress").iter().map(|event| event["text"].clone()).collect();
    let text = Value::from(lines).to_string();
    for shown in ["$ /bin/bash -lc", "API_TOKEN=…", "exit 1: /bin/bash -lc"] {
        assert!(text.contains(shown), "{shown} is not in {text}");
    }
    for hidden in ["out-42", "abc123"] {
        assert!(!text.contains(hidden), "{hidden} is in {text}");
    }
    let last = events.iter().rposition(|event| event["type"] == "tool.progress").unwrap();
    assert!(place("tool.started") < place("tool.progress") && last < place("tool.completed"));
    let asked = talk.last_request();
    let kept = Value::from(asked.input().to_vec()).to_string();
    let journal = fs::read_to_string(talk.env.layout().session(talk.session.parse().unwrap()).journal()).unwrap();
    for text in [kept, journal, of_type(&events, "tool.completed")[0].to_string()] {
        assert!(!text.contains("/bin/bash") && !text.contains("tool.progress"), "{text}");
    }
    assert_eq!(told(&talk.model)["reply"], "made");
}

#[test]
fn while_it_runs_it_is_on_record_listed_tagged_and_a_group_of_its_own() {
    let mut talk = talk(FULL);
    fs::create_dir(talk.env.work().join("sub")).unwrap();
    let command = "sleep 600 & touch ../mark; wait";
    at_work(&mut talk, command, &json!({"cwd": "sub"}));
    let env = &talk.env;
    let worker = env.worker_of(&talk.session);
    let (record, leader) = (record(env), leader(env));
    let handle = record["handle"].as_str().unwrap().to_owned();
    let cwd = env.work().canonicalize().unwrap().join("sub");
    let told = ["agent", "session", "conversation", "turn", "depth", "cwd"].map(|name| record[name].clone());
    assert_eq!(told, [json!("codex"), json!(talk.session), json!("codex-1"), json!(1), json!(1), json!(cwd)]);
    assert_eq!((&record["owner"]["pid"], &record["process"]["start"]), (&json!(worker.pid), &json!(leader.start)));
    let delegations = env.layout().delegations();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&delegations), mode(&delegations.join(format!("{handle}.json")))), (0o700, 0o600));

    let [listed] = &listed(env)[..] else { panic!("one is listed") };
    for (name, value) in [
        ("handle", json!(handle)),
        ("pid", json!(leader.pid)),
        ("owner_pid", json!(worker.pid)),
        ("cwd", json!(cwd)),
        ("conversation", json!("codex-1")),
        ("turn", json!(1)),
        ("orphaned", json!(false)),
    ] {
        assert_eq!(listed[name], value, "{name} of {listed}");
    }
    // The launcher, Codex, its shell and the command.
    assert!(listed["processes"].as_u64().unwrap() >= 4, "{listed}");
    assert!(env.scv(&["status"]).exits(0).stdout.contains("1 at work, 0 idle"));

    assert_eq!((leader.ppid, leader.group), (worker.pid, leader.pid));
    assert_ne!(leader.group, worker.group);
    // The shell has started it, and it may not have become `sleep` yet.
    let mut found = None;
    eventually("the command's child", scv_tests::DEADLINE, || {
        found = env.children().into_iter().find(|child| child.name == "sleep");
        found.is_some()
    });
    let sleep = found.unwrap();
    assert_eq!((leader.cwd(), sleep.cwd()), (Some(cwd.clone()), Some(cwd)));
    for process in [&leader, &sleep] {
        let chain = process.var("SCV_PARENT").unwrap();
        assert_eq!(chain, format!("{}/{}/{handle}", env.layout().instance(), talk.session), "{process}");
        assert_eq!(process.var("SCV_SESSION").as_deref(), Some(talk.session.as_str()));
        assert_eq!(process.var("SCV_DELEGATION_DEPTH").as_deref(), Some("1"));
        assert!(process.rttime().is_some() && process.rttime() == leader.rttime(), "{process}");
    }
}

#[test]
fn it_works_in_its_private_home_without_any_key_of_ours() {
    let (env, model) = installed(FULL);
    let own = env.root().join("home/.codex");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("config.toml"), "model = \"poison\"\n").unwrap();
    fs::write(own.join("AGENTS.md"), "poison\n").unwrap();
    let env = env
        .var("OPENAI_API_KEY", "sk-user-openai")
        .var("MY_SECRET", "sk-test-0123456789abcdef")
        .var("CODEX_HOME", own.as_os_str())
        .var("XDG_CONFIG_HOME", own.parent().unwrap().join(".config"));
    let mut talk = Talk::of(env, model, &[], &json!({"auto_approve": true}));
    // Its shell's parent is Codex itself.
    codex_answers(&talk.model, [shell("env > env; tr '\\0' '\\n' < /proc/$PPID/environ > environ"), Reply::text("ok")]);
    assert_eq!(delegate(&mut talk, "look around", &json!({}))["status"], "completed");
    let env = &talk.env;
    let home = env.layout().agent_home("codex");
    for file in ["env", "environ"] {
        let text = fs::read_to_string(env.work().join(file)).unwrap();
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        for (name, below) in [("HOME", ""), ("CODEX_HOME", ""), ("XDG_CONFIG_HOME", ".config"), ("SCV_HOME", ".scv")] {
            let expected = if below.is_empty() { home.clone() } else { home.join(below) };
            assert_eq!(value(name), expected.to_str(), "{name} in {file}");
        }
        for secret in ["sk-user-openai", "sk-test-", CODEX_KEY, "_API_KEY"] {
            assert!(!text.contains(secret), "{secret} is in {file}: {text}");
        }
    }
    let asked = &codex_requests(&talk.model)[0];
    assert_eq!((asked.model(), asked.header("authorization")), ("codex-model", Some(&*format!("Bearer {CODEX_KEY}"))));
    assert!(!asked.body.to_string().contains("poison"));
    assert!(home.join("sessions").exists(), "its transcripts are in its private home");
    let names: Vec<_> = fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "nothing was written to the user's own: {names:?}");
    assert_eq!(home.join("tmp").metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn full_permissions_are_shown_for_approval_and_in_force() {
    for (config, is_full) in [("", false), (FULL, true)] {
        let (env, model) = installed(config);
        let mut talk = Talk::of(env, model, &[], &json!({}));
        let gate = Gate::new();
        codex_answers(&talk.model, [Reply::new().stall(&gate).delta("ok")]);
        talk.model.push(hand_over("look", &json!({"model": "m-2", "effort": "high", "timeout_seconds": 90})));
        talk.model.push(Reply::text("done"));
        talk.wire.prompt(&talk.session.clone(), "go");
        let asked = talk.wire.approve();
        let summary = asked["summary"].as_str().unwrap();
        let program = agents::program("codex");
        let start = format!("agent codex: Launch {} with args [\"exec\",", program.display());
        assert!(summary.starts_with(&start), "{summary}");
        assert_eq!(asked["risk"], "delegate");
        assert!(summary.contains("for at most 90 s") && summary.ends_with("Prompt: look"), "{summary}");
        assert_eq!(summary.contains("FULL PERMISSIONS"), is_full, "{summary}");

        wait(gate.reached());
        let args = leader(&talk.env).args;
        // What was shown is what runs.
        let shown = summary.split_once(" with args ").unwrap().1.split_once("] ").unwrap().0;
        let shown: Vec<String> = serde_json::from_str(&format!("{shown}]")).unwrap();
        let at = args.iter().position(|arg| arg == "exec").unwrap();
        assert_eq!(args[at..args.len() - 1], shown[..shown.len() - 1]);
        assert_eq!((args.last().unwrap().as_str(), shown.last().unwrap().as_str()), ("look", "<prompt>"));
        let flags = ["--dangerously-bypass-approvals-and-sandbox", "-c", "web_search=\"live\"", "--json", "-o"];
        assert_eq!(shown[1..].iter().map(String::as_str).take(5).eq(flags), is_full, "{shown:?}");
        let request = &codex_requests(&talk.model)[0];
        assert_eq!((request.model(), &request.body["reasoning"]["effort"]), ("m-2", &json!("high")));
        gate.release();
        talk.wire.turn();
    }
}

#[test]
fn it_reads_the_instructions_and_skills_of_the_directory_that_it_works_in() {
    let mut talk = talk("");
    let skill = "---\nname: release-checks\ndescription: Checks the harbour before a release.\n---\nBody.\n";
    talk.env.file("sub/AGENTS.md", "Always mention the lighthouse.\n");
    talk.env.file("sub/.agents/skills/release-checks/SKILL.md", skill);
    codex_answers(&talk.model, [Reply::text("ok"), Reply::text("ok")]);
    delegate(&mut talk, "work", &json!({"cwd": "sub"}));
    delegate(&mut talk, "work", &json!({}));
    let knows = codex_requests(&talk.model)
        .iter()
        .map(|request| request.body.to_string())
        .map(|body| (body.contains("mention the lighthouse"), body.contains("Checks the harbour")))
        .collect::<Vec<_>>();
    assert_eq!(knows, [(true, true), (false, false)]);
}
