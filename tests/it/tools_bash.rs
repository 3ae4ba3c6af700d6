//! `bash`, from the model's call to the last process that it started.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use scv_tests::fakes::model::Reply;
use scv_tests::talk::of_type;
use scv_tests::{Talk, eventually};
use serde_json::{Value, json};

/// Runs `command`; its `tool.completed`, and the object in it.
#[track_caller]
fn run(talk: &mut Talk, command: &str) -> (Value, Value) {
    run_with(talk, &json!({"command": command}))
}

#[track_caller]
fn run_with(talk: &mut Talk, arguments: &Value) -> (Value, Value) {
    let result = talk.call("bash", arguments);
    let text = result["output"].as_str().unwrap();
    let object = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (result, object)
}

fn took(result: &Value) -> Duration {
    Duration::from_millis(result["duration_ms"].as_u64().unwrap())
}

/// Starts a turn that runs `command`, which has to make the file `up`; returns once it is there.
#[track_caller]
fn start(talk: &mut Talk, command: &str) -> Value {
    talk.model.push(Reply::new().call("bash", &json!({"command": command})));
    talk.wire.prompt(&talk.session.clone(), "run");
    let started = talk.wire.until_type("tool.started");
    eventually("the command runs", scv_tests::DEADLINE, || talk.env.work().join("up").exists());
    started
}

/// Cancels the turn of `started`; how long that took and the call's result.
#[track_caller]
fn cancel(talk: &mut Talk, started: &Value) -> (Duration, Value) {
    let start = Instant::now();
    talk.wire.request(json!({"type": "turn.cancel", "session_id": talk.session, "turn_id": started["turn_id"]}));
    let events = talk.wire.turn();
    assert_eq!(events.last().unwrap()["type"], "turn.cancelled", "{}", talk.wire.report());
    (start.elapsed(), of_type(&events, "tool.completed").remove(0))
}

#[test]
fn a_command_gets_a_login_shell_in_the_workspace_without_input() {
    let mut talk = Talk::approving("");
    fs::write(talk.env.root().join("home/.bash_profile"), "export FROM_PROFILE=yes\n").unwrap();
    let (result, object) = run(&mut talk, "shopt -q login_shell; echo $? $0 $FROM_PROFILE; pwd; wc -c");
    let expected = format!("0 /bin/bash yes\n{}\n0\n", talk.env.work().display());
    assert_eq!((object["output"].as_str().unwrap(), &result["success"]), (&*expected, &json!(true)));
    // Not sandboxed: the shell reads what the user can read.
    let (_, object) = run(&mut talk, "cat \"$HOME/.bash_profile\"");
    assert!(object["output"].as_str().unwrap().contains("FROM_PROFILE"));
}

#[test]
fn both_streams_come_in_order_with_the_exit_status() {
    let mut talk = Talk::approving("");
    let (result, object) = run(&mut talk, "echo one; echo two >&2; echo three; exit 3");
    let expected =
        json!({"exit_status": "exit status: 3", "output": "one\ntwo\nthree\n", "output_bytes": 14, "truncated": false});
    assert_eq!(object, expected);
    assert_eq!((&result["success"], &result["error"]), (&json!(false), &json!("failed")));
    let (result, object) = run(&mut talk, "kill -9 $$");
    assert_eq!((&object["exit_status"], &result["success"]), (&json!("signal: 9"), &json!(false)));
    let (result, object) = run(&mut talk, "true");
    assert_eq!((&object["exit_status"], &result["success"]), (&json!("exit status: 0"), &json!(true)));
}

#[test]
fn a_command_is_shown_whole_with_its_limit_before_it_runs() {
    let mut talk = Talk::start();
    let (asked, _) = talk.call_asked("bash", &json!({"command": "echo a\necho b", "timeout_seconds": 77}));
    let asked = asked.expect("process risk is asked for");
    assert_eq!((&asked["risk"], &asked["cwd"]), (&json!("process"), &json!(talk.env.work())));
    let summary = asked["summary"].as_str().unwrap();
    assert!(summary.contains("echo a\necho b") && summary.contains("77 s"), "{summary}");
    talk.model.push(Reply::new().call("bash", &json!({"command": "touch made"})));
    talk.model.push(Reply::text("pity"));
    let events = talk.turn_answering("run", false);
    assert_eq!(of_type(&events, "tool.completed")[0]["error"], "denied");
    assert!(!talk.env.work().join("made").exists());
}

#[test]
fn a_limit_over_the_ceiling_is_refused_before_approval_with_the_ceiling_named() {
    let mut talk = Talk::start();
    let over = json!({"command": "touch made", "timeout_seconds": 14_401});
    for arguments in [over, json!({"command": "touch made", "timeout_seconds": u64::MAX})] {
        let (asked, result) = talk.call_asked("bash", &arguments);
        assert_eq!((asked, &result["error"]), (None, &json!("invalid_arguments")));
        assert!(result["output"].as_str().unwrap().contains("14400"), "{result}");
    }
    let (asked, result) = talk.call_asked("bash", &json!({"command": "touch made", "timeout_seconds": 0}));
    assert_eq!((asked, &result["error"]), (None, &json!("invalid_arguments")));
    assert!(!talk.env.work().join("made").exists());
}

#[test]
fn the_limit_in_force_is_the_one_that_is_told_everywhere() {
    for (more, default, ceiling) in
        [("", 600, 14_400), ("[tools]\ncommand_timeout_seconds = 50\nmax_timeout_seconds = 100", 50, 100)]
    {
        let mut talk = Talk::approving(more);
        for (arguments, limit) in [
            (json!({"command": "true"}), default),
            (json!({"command": "true", "timeout_seconds": 7}), 7),
            (json!({"command": "true", "timeout_seconds": ceiling}), ceiling),
        ] {
            talk.model.push(Reply::new().call("bash", &arguments));
            talk.model.push(Reply::text("done"));
            let started = of_type(&talk.turn("run"), "tool.started").remove(0);
            assert_eq!(started["limit_ms"], limit * 1000, "{more:?} {arguments}");
        }
        let asked = talk.last_request();
        let tool = asked.body["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "bash").unwrap();
        let timeout = &tool["parameters"]["properties"]["timeout_seconds"];
        assert_eq!(timeout["maximum"], ceiling);
        assert!(timeout["description"].as_str().unwrap().contains(&format!("Default {default}.")), "{timeout}");
    }
}

#[test]
fn the_deadline_kills_at_once_whatever_the_command_ignores() {
    let mut talk = Talk::approving("");
    let commands = [
        "trap '' TERM INT HUP; echo begun; sleep 600",
        "echo begun; setsid sleep 601 & sleep 602",
        "yes",
        "while :; do echo flowing; done",
        "echo begun; kill -STOP $$",
    ];
    for command in commands {
        let (result, object) = run_with(&mut talk, &json!({"command": command, "timeout_seconds": 1}));
        assert_eq!((&result["success"], &result["error"]), (&json!(false), &json!("limit")), "{command}: {object}");
        let error = object["error"].as_str().unwrap();
        assert!(error.contains("time limit of 1 s") && !object["output"].as_str().unwrap().is_empty(), "{object}");
        assert!((1000..2500).contains(&took(&result).as_millis()), "{command}: {:?}", took(&result));
        assert_eq!(talk.env.children(), [], "{command}");
    }
}

#[test]
fn of_a_long_output_the_head_and_the_tail_are_kept() {
    let mut talk = Talk::approving("");
    let (result, object) = run(&mut talk, "echo the beginning; seq 1 200000; echo 'error: the cause'; exit 1");
    let output = object["output"].as_str().unwrap();
    assert!(output.starts_with("the beginning\n1\n2\n") && output.ends_with("200000\nerror: the cause\n"));
    assert!(output.len() < (65 << 10) && output.len() > (60 << 10), "{}", output.len());
    assert_eq!((&object["truncated"], &result["truncated"]), (&json!(true), &json!(true)));
    assert!(object["output_bytes"].as_u64().unwrap() > 1_200_000);
    // The mark says how much is missing, between two whole lines' worth of digits.
    assert!(output.contains("bytes"), "the cut is marked");
}

#[test]
fn the_limit_of_the_configuration_bounds_the_output() {
    let mut talk = Talk::approving("[tools]\noutput_limit_bytes = 2048");
    let (_, object) = run(&mut talk, "head -c 1000000 /dev/zero | tr '\\0' x");
    assert!(object["output"].as_str().unwrap().len() < 2048 + 100);
}

#[test]
fn nul_bytes_and_binary_output_stay_small_and_readable() {
    let mut talk = Talk::approving("");
    let (_, object) = run(&mut talk, "printf 'some text with a\\0nul and more'");
    assert_eq!(object["output"], "some text with a␀nul and more");
    for command in ["head -c 300000 /dev/urandom", "head -c 300000 /dev/zero", "cat /bin/bash"] {
        let (result, object) = run(&mut talk, command);
        assert!(object["output"].as_str().unwrap().contains("binary output"), "{command}: {object}");
        assert!(result.to_string().len() < 2000, "{command}: {} bytes", result.to_string().len());
    }
    let (_, object) = run(&mut talk, "printf 'gr\\xfc\\xdfe aus Latin-1, das ist kein UTF-8'");
    assert!(object["output"].as_str().unwrap().starts_with("gr"), "{object}");
}

#[test]
fn a_child_that_holds_the_pipe_does_not_hold_the_call() {
    let mut talk = Talk::approving("");
    for command in [
        "sleep 600 & echo done",
        "(sleep 600; echo late) & disown; echo done",
        "nohup sleep 600 & echo done",
        "setsid sleep 600 & echo done",
        "setsid bash -c '(sleep 600 &) ; sleep 600' & echo done",
        "env -i setsid sleep 600 </dev/null >/dev/null 2>&1 & sleep 0.05; echo done",
    ] {
        let (result, object) = run(&mut talk, command);
        assert_eq!(result["success"], true, "{command}: {object}");
        assert!(object["output"].as_str().unwrap().ends_with("done\n"), "{command}: {object}");
        let ended = object["ended"].as_array().unwrap_or_else(|| panic!("{command}: what was left is named: {object}"));
        assert!(ended.iter().any(|left| left.as_str().unwrap().starts_with("sleep (pid ")), "{command}: {ended:?}");
        assert!(took(&result) < Duration::from_millis(900), "{command}: {:?}", took(&result));
        assert_eq!((talk.env.children(), talk.env.zombies()), (vec![], vec![]), "{command}");
    }
}

#[test]
fn a_cancel_lets_a_command_say_good_bye() {
    let mut talk = Talk::approving("");
    let started = start(&mut talk, "trap 'echo bye; touch left; exit 0' TERM; touch up; while :; do sleep 0.02; done");
    let (took, result) = cancel(&mut talk, &started);
    assert!(took < Duration::from_millis(1500), "{took:?}");
    assert_eq!(result["error"], "cancelled");
    assert!(result["output"].as_str().unwrap().contains("bye") && talk.env.work().join("left").exists(), "{result}");
}

#[test]
fn a_cancel_of_a_command_with_children_is_quick() {
    let mut talk = Talk::approving("");
    let started = start(&mut talk, "for n in 1 2 3 4; do sleep 600 & done; setsid sleep 601 & touch up; wait");
    let (took, result) = cancel(&mut talk, &started);
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!((&result["error"], talk.env.children()), (&json!("cancelled"), vec![]));
}

#[test]
fn a_command_that_ignores_a_cancel_is_killed_after_two_seconds() {
    let mut talk = Talk::approving("");
    let started = start(&mut talk, "trap '' TERM; setsid bash -c \"trap '' TERM; touch up; sleep 600\" & sleep 601");
    let (took, _) = cancel(&mut talk, &started);
    assert!((1900..3500).contains(&took.as_millis()), "{took:?}");
    assert_eq!(talk.env.children(), []);
}

#[test]
fn children_know_their_session_and_are_in_a_group_of_their_own() {
    let mut talk = Talk::approving("");
    let command =
        "echo $SCV_SESSION; echo $SCV_PARENT; echo $SCV_DELEGATION_DEPTH; ps -o pgid= -p $$ | tr -d ' '; echo $$";
    let (_, object) = run(&mut talk, command);
    let lines: Vec<&str> = object["output"].as_str().unwrap().lines().collect();
    assert_eq!((lines[0], lines[2]), (&*talk.session, "0"));
    assert!(lines[1].contains(&format!("/{}/bash-", talk.session)), "{lines:?}");
    assert_eq!(lines[3], lines[4], "the shell leads its group");
}

#[test]
fn a_command_that_is_killed_from_outside_is_an_answer() {
    let mut talk = Talk::approving("");
    start(&mut talk, "touch up; exec sleep 600");
    talk.model.push(Reply::text("done"));
    for child in talk.env.children() {
        child.signal(Signal::SEGV);
    }
    let events = talk.wire.turn();
    assert!(of_type(&events, "tool.completed")[0]["output"].as_str().unwrap().contains("signal: 11"), "{events:?}");
    assert_eq!(events.last().unwrap()["type"], "turn.completed");
}

#[test]
fn a_progress_line_never_shows_half_a_key() {
    let key = "correcthorsebatterystaple";
    let mut talk = Talk::approving(&format!(
        "[providers.other]\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:9\"\napi_key = \"{key}\""
    ));
    let command = "printf 'x%.0s' {1..190}; grep -o 'correct[a-z]*' \"$SCV_HOME/config.toml\"; sleep 0.7";
    talk.model.push(Reply::new().call("bash", &json!({"command": command})));
    talk.model.push(Reply::text("done"));
    let progress = of_type(&talk.turn("go"), "tool.progress");
    assert_eq!(progress.len(), 1, "{progress:?}");
    assert!(!progress[0].to_string().contains("corr"), "{progress:?}");
}
