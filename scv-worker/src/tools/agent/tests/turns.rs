//! Turns of a real process, and the six ways they end.

use super::*;

use std::time::Instant;

#[test]
fn a_turn_gives_one_object_with_its_fields_sorted() {
    as_worker(async || {
        let bench = Setup::default().bench(&format!("echo warn >&2\n{}", answer("done")));
        let ran = bench.run(call("x")).await.unwrap();
        assert_eq!(
            ran.output.text,
            r#"{"agent":"codex","exit_code":0,"reply":"done","session":"codex-1","status":"completed","stderr_tail":"warn\n","truncated":false,"turn":1,"usage":{"input_tokens":12,"output_tokens":7}}"#
        );
        assert!(ran.output.success && !ran.output.truncated);
    });
}

#[test]
fn arguments_arrive_whole_and_the_prompt_is_never_shell_text() {
    as_worker(async || {
        let bench = Setup::default().bench(&format!("printf '%s\\n' \"$@\" > args\ncat > stdin\n{}", answer("ok")));
        let prompt = "touch \"a b\"; $(touch pwned) 'q' \\n";
        bench.run(json!({"agent": "codex", "prompt": prompt, "model": "m/x:1", "effort": "high"})).await.unwrap();
        let args = bench.wrote("args");
        let args: Vec<&str> = args.lines().collect();
        assert_eq!((args[0], args[1]), ("--json", "-o"));
        assert_eq!(&args[3..], ["-m", "m/x:1", "-c", "model_reasoning_effort=\"high\"", prompt]);
        assert_eq!(bench.wrote("stdin"), "", "its standard input is empty");
        assert!(!bench.workspace().join("pwned").exists());
    });
}

#[test]
fn an_agent_sees_its_private_home_and_no_credential() {
    as_worker(async || {
        let setup = Setup {
            env: vec![
                ("OPENAI_API_KEY", "sk".into()),
                ("ANTHROPIC_AUTH_TOKEN", "t".into()),
                ("CODEX_HOME", "/x".into()),
                ("SCV_CONFIG", "/x".into()),
                ("LANG", "C.UTF-8".into()),
            ],
            ..Setup::default()
        };
        let bench = setup.bench(&format!("env > env\n{}", answer("ok")));
        bench.run(call("x")).await.unwrap();
        let env = bench.wrote("env");
        let value = |name: &str| env.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        let home = bench.layout.agent_home("codex");
        let home = home.to_str().unwrap();
        assert_eq!(value("HOME"), Some(home));
        assert_eq!(value("CODEX_HOME"), Some(home));
        assert_eq!(value("LANG"), Some("C.UTF-8"));
        assert_eq!(value("SCV_DELEGATION_DEPTH"), Some("1"));
        assert!(value("SCV_PARENT").unwrap().contains(&format!("/{}/codex-", bench.session)));
        assert!(value("SCV_HOME").unwrap().starts_with(home) && value("TMPDIR").unwrap().starts_with(home));
        for name in ["OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN", "SCV_CONFIG"] {
            assert_eq!(value(name), None, "{name}");
        }
    });
}

#[test]
fn cwd_is_a_directory_inside_the_workspace_whatever_links_there_are() {
    as_worker(async || {
        let bench = Setup::default().bench(&format!("pwd -P > pwd\n{}", answer("ok")));
        let (workspace, outside) = (bench.workspace(), tempfile::tempdir().unwrap());
        std::fs::create_dir(workspace.join("sub")).unwrap();
        std::fs::write(workspace.join("file"), "").unwrap();
        std::os::unix::fs::symlink("sub", workspace.join("inside")).unwrap();
        std::os::unix::fs::symlink(outside.path(), workspace.join("escape")).unwrap();
        bench.run(call("x")).await.unwrap();
        assert_eq!(bench.wrote("pwd").trim(), workspace.to_str().unwrap(), "without one it is the workspace");
        let cwd = |cwd: &str| json!({"agent": "codex", "prompt": "x", "cwd": cwd});
        for name in ["sub", "inside", workspace.join("sub").to_str().unwrap()] {
            bench.run(cwd(name)).await.unwrap();
            assert_eq!(bench.wrote("sub/pwd").trim(), workspace.join("sub").to_str().unwrap());
            std::fs::remove_file(workspace.join("sub/pwd")).unwrap();
        }
        for (name, why) in [
            ("escape", "escape leads outside the workspace"),
            ("..", ".. leads outside the workspace"),
            ("/", "/ leads outside the workspace"),
            ("file", "file is no directory"),
            ("missing", "missing does not exist"),
        ] {
            let error = bench.run(cwd(name)).await.err().unwrap();
            assert!(error.to_string().contains(why), "{name}: {error}");
        }
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_conversation_goes_on_where_it_works() {
    as_worker(async || {
        let script = format!("printf '%s ' \"$@\" >> args; echo >> args\n{}", answer("ok"));
        let bench = Setup::default().bench(&script);
        std::fs::create_dir(bench.workspace().join("sub")).unwrap();
        bench.run(json!({"agent": "codex", "prompt": "one", "cwd": "sub"})).await.unwrap();
        assert!(bench.layout.conversations().join("thread-1.json").exists());
        let ran = bench.run(json!({"prompt": "two", "session": "codex-1"})).await.unwrap().json();
        assert_eq!((&ran["session"], &ran["turn"]), (&json!("codex-1"), &json!(2)));
        assert_eq!(ran["usage"]["input_tokens"], 0, "usage of a thread is cumulative");
        let args = bench.wrote("sub/args");
        let second = args.lines().nth(1).unwrap();
        assert!(second.starts_with("resume --json -o ") && second.ends_with(" thread-1 two "), "{second}");
        let error = bench.run(json!({"prompt": "x", "session": "codex-1", "cwd": "."})).await.err().unwrap();
        assert!(error.to_string().starts_with("conversation codex-1 works in "), "{error}");
        bench.tool.agents.conversations().close();
    });
}

#[test]
fn a_handle_must_agree_with_the_agent_and_be_idle() {
    as_worker(async || {
        let bench = Setup::default().bench(&answer("ok"));
        bench.run(call("one")).await.unwrap();
        let conversations = bench.tool.agents.conversations();
        drop(conversations.begin("other", &bench.workspace()).map(|mut turn| turn.confirm("t9")));
        let refusal = bench.refusal(json!({"prompt": "x", "agent": "codex", "session": "other-1"}));
        assert_eq!(
            refusal,
            "conversation other-1 belongs to other, not codex; omit agent to continue it, or omit session to start a \
             new conversation with codex"
        );
        let running = conversations.resume("codex-1").unwrap();
        let error = bench.run(json!({"prompt": "x", "session": "codex-1"})).await.err().unwrap();
        assert!(error.to_string().starts_with("session busy"), "{error}");
        drop(running);
    });
}

#[test]
fn a_conversation_that_the_program_forgot_is_started_anew_once() {
    as_worker(async || {
        let script = format!(
            "case $1 in resume) echo 'Error: no rollout found for thread id thread-1 (code -32600)' >&2; exit 1;; esac\n{}",
            answer("fresh")
        );
        let bench = Setup::default().bench(&script);
        bench.run(call("one")).await.unwrap();
        let ran = bench.run(json!({"prompt": "two", "session": "codex-1"})).await.unwrap().json();
        assert_eq!((&ran["status"], &ran["reply"]), (&json!("completed"), &json!("fresh")));
        assert_eq!((&ran["session"], &ran["turn"]), (&json!("codex-2"), &json!(1)));
        assert!(ran["note"].as_str().unwrap().contains("no longer knew conversation codex-1, so its history is gone"));
        assert_eq!(ran["usage"]["input_tokens"], 12, "a new conversation counts anew");
        assert!(bench.refusal(json!({"prompt": "x", "session": "codex-1"})).contains("it has codex-2"));
    });
}

#[test]
fn what_it_does_is_shown_while_it_works() {
    as_worker(async || {
        let script = format!(
            "echo '{}'\n{}",
            r#"{"type":"item.started","item":{"id":"0","type":"command_execution","command":"TOKEN=abc make"}}"#,
            answer("ok")
        );
        assert_eq!(Setup::default().bench(&script).run(call("x")).await.unwrap().progress, ["$ TOKEN=… make"]);
    });
}

#[test]
fn a_failed_turn_tells_why_and_forgets_an_unconfirmed_conversation() {
    as_worker(async || {
        let bench = Setup::default().bench("echo 'Not logged in' >&2; exit 1");
        let ran = bench.run(call("x")).await.unwrap();
        assert!(!ran.output.success);
        let ran = ran.json();
        assert_eq!((&ran["status"], &ran["exit_code"]), (&json!("failed"), &json!(1)));
        assert_eq!(ran["error"], "Codex exited with exit status: 1: Not logged in");
        assert!(ran["hint"].as_str().unwrap().contains("scv agents login codex"));
        assert_eq!(ran.get("session"), None);
        assert!(bench.refusal(json!({"prompt": "x", "session": "codex-1"})).contains("no conversation"));
    });
}

#[test]
fn the_final_message_of_the_file_counts_if_the_stream_has_none() {
    as_worker(async || {
        let script = r#"echo '{"type":"thread.started","thread_id":"t"}'
while [ "$1" != -o ]; do shift; done
printf 'from the file\n' > "$2"
echo '{"type":"turn.completed"}'"#;
        let bench = Setup::default().bench(script);
        assert_eq!(bench.run(call("x")).await.unwrap().json()["reply"], "from the file");
        bench.assert_clean();
    });
}

#[test]
fn a_reply_is_bounded_on_a_character() {
    as_worker(async || {
        let mut setup = Setup::default();
        setup.config.tools.output_limit_bytes = 1024;
        let ran = setup.bench(&answer(&"漢".repeat(1000))).run(call("x")).await.unwrap();
        assert!(ran.output.truncated);
        assert_eq!(ran.json()["reply"], "漢".repeat(341));
    });
}

#[test]
fn at_the_deadline_everything_is_killed_and_the_conversation_can_go_on() {
    as_worker(async || {
        let script = "echo '{\"type\":\"thread.started\",\"thread_id\":\"t\"}'
trap '' TERM
setsid bash -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 0.2; done' &
env -i setsid -f bash -c 'trap \"\" TERM; while :; do sleep 0.2; done'
while :; do sleep 0.2; done";
        let bench = Setup::default().bench(script);
        let began = Instant::now();
        let ran = bench.run(json!({"agent": "codex", "prompt": "x", "timeout_seconds": 1})).await.unwrap().json();
        assert!(began.elapsed() < Duration::from_secs(3), "the deadline kills at once");
        assert_eq!((&ran["status"], &ran["session"]), (&json!("timeout"), &json!("codex-1")));
        assert_eq!(ran["error"], "Codex did not finish within 1 s");
        assert!(ran["note"].as_str().unwrap().contains("Pass session codex-1"));
        let pid = bench.wrote("pid");
        assert!(!Path::new("/proc").join(pid.trim()).exists(), "a descendant with its own session is gone");
        bench.assert_clean();
    });
}

/// A script that has started, and then waits for ever.
const WAITS: &str =
    "echo '{\"type\":\"item.started\",\"item\":{\"id\":\"0\",\"type\":\"command_execution\",\"command\":\"wait\"}}'
touch started
while :; do sleep 0.1; done";

async fn started(bench: &Bench) {
    while !bench.workspace().join("started").exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn a_cancelled_turn_ends_everything_within_its_bound() {
    as_worker(async || {
        let bench = Setup::default().bench(&format!("trap '' TERM\n{WAITS}"));
        let cancel = CancellationToken::new();
        let (ran, ()) = tokio::join!(bench.run_until(call("x"), cancel.clone()), async {
            started(&bench).await;
            cancel.cancel();
        });
        assert!(matches!(ran.err(), Some(ToolError::Cancelled(_))));
        bench.assert_clean();
    });
}

#[test]
fn a_killed_delegation_is_cancelled_and_told() {
    as_worker(async || {
        let bench = Setup::default().bench(WAITS);
        let (ran, killed) = tokio::join!(bench.run(call("x")), async {
            started(&bench).await;
            let record = std::fs::read_dir(bench.layout.delegations()).unwrap().next().unwrap().unwrap();
            let handle = record.path().file_stem().unwrap().to_str().unwrap().to_owned();
            let record: Value = serde_json::from_slice(&std::fs::read(record.path()).unwrap()).unwrap();
            assert_eq!((&record["agent"], &record["conversation"]), (&json!("codex"), &json!("codex-1")));
            assert!(record["process"]["pid"].as_i64().is_some_and(|pid| pid > 0));
            (bench.runs.kill(&handle).await, bench.runs.kill("codex-000000").await)
        });
        assert_eq!(killed, (true, false));
        let ran = ran.unwrap();
        assert_eq!((ran.output.success, &ran.json()["status"]), (false, &json!("cancelled")));
        bench.assert_clean();
    });
}

#[test]
fn a_program_that_is_gone_mid_turn_fails_at_once() {
    as_worker(async || {
        let bench = Setup::default().bench(
            "echo '{\"type\":\"thread.started\",\"thread_id\":\"t\"}'; echo last words >&2
sleep 60 & kill -9 $$",
        );
        let began = Instant::now();
        let ran = bench.run(call("x")).await.unwrap().json();
        assert!(began.elapsed() < Duration::from_secs(5));
        assert_eq!((&ran["status"], &ran["exit_code"]), (&json!("failed"), &Value::Null));
        assert_eq!(ran["error"], "Codex exited with signal: 9 before it finished its turn: last words");
        assert_eq!(ran["session"], "codex-1", "what was confirmed can go on");
        bench.assert_clean();
    });
}

#[test]
fn a_program_that_answered_but_never_exits_is_ended_and_its_answer_kept() {
    as_worker(async || {
        let bench = Setup::default().bench(&format!("{}\nwhile :; do sleep 0.1; done", answer("done")));
        let ran = bench.run(call("x")).await.unwrap();
        assert!(ran.output.success);
        assert_eq!(ran.json()["reply"], "done");
        assert!(ran.json()["note"].as_str().unwrap().contains("its process did not exit and was stopped"));
        bench.assert_clean();
    });
}

#[test]
fn a_program_that_never_reports_its_end_is_ended_and_its_answer_kept() {
    as_worker(async || {
        let script =
            "echo '{\"type\":\"item.completed\",\"item\":{\"id\":\"1\",\"type\":\"agent_message\",\"text\":\"done\"}}'
while :; do sleep 0.1; done";
        let bench = Setup::default().bench(script);
        let ran = bench.run(call("x")).await.unwrap().json();
        assert_eq!((&ran["status"], &ran["reply"]), (&json!("completed"), &json!("done")));
        assert!(ran["note"].as_str().unwrap().contains("never reported the end of its turn"));
        bench.assert_clean();
    });
}

#[test]
fn silence_is_no_failure_while_a_command_runs() {
    as_worker(async || {
        let script = format!("{}\nsleep 1.5\n{}", WAITS.lines().next().unwrap(), answer("done"));
        let bench = Setup::default().bench(&script);
        assert_eq!(bench.run(call("x")).await.unwrap().json()["status"], "completed");
    });
}

#[test]
fn an_abandoned_call_leaves_nothing() {
    as_worker(async || {
        let bench = Setup::default().bench(&format!("setsid sleep 60 &\n{WAITS}"));
        tokio::select! {
            _ = bench.run(call("x")) => panic!("it waits for ever"),
            () = started(&bench) => {}
        }
        // What was sent SIGKILL may need a moment to be gone.
        let deadline = Instant::now() + LONG;
        while !bench.processes().is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bench.assert_clean();
    });
}

#[test]
fn a_background_child_that_holds_the_pipes_delays_nothing() {
    as_worker(async || {
        let bench = Setup::default().bench(&format!("sleep 60 &\n{}", answer("done")));
        let began = Instant::now();
        assert_eq!(bench.run(call("x")).await.unwrap().json()["reply"], "done");
        assert!(began.elapsed() < Duration::from_secs(2));
        bench.assert_clean();
    });
}

#[test]
fn a_flood_of_output_is_taken_in_bounded_memory() {
    as_worker(async || {
        let script = format!("head -c 20000000 /dev/zero | tr '\\0' x; echo\n{}", answer("done"));
        let ran = Setup::default().bench(&script).run(call("x")).await.unwrap().json();
        assert_eq!((&ran["status"], &ran["reply"]), (&json!("completed"), &json!("done")));
    });
}
