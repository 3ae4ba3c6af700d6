//! The tool against real shells.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::runs::tests::runs;
use crate::tools::Progress;

fn bash() -> Bash {
    let limits = Limits { default_seconds: 600, max_seconds: 14_400, output_bytes: 1 << 16 };
    Bash { runs: runs(), cwd: "/".into(), limits }
}

/// A call that nobody cancels.
async fn call(bash: &Bash, arguments: Value) -> Result<Output, ToolError> {
    cancelled_by(bash, arguments, CancellationToken::new()).await
}

async fn cancelled_by(bash: &Bash, arguments: Value, cancel: CancellationToken) -> Result<Output, ToolError> {
    let (lines, _seen) = mpsc::channel(64);
    let context = CallContext { cancel, progress: Progress::new(lines) };
    (bash.prepare(arguments)?.run)(context).await
}

async fn output(command: &str) -> (bool, Value) {
    let output = call(&bash(), json!({ "command": command })).await.unwrap();
    (output.success, serde_json::from_str(&output.text).unwrap())
}

fn refused(arguments: Value) -> String {
    match bash().prepare(arguments) {
        Err(ToolError::Invalid(text)) => text,
        Err(other) => panic!("{other:?}"),
        Ok(prepared) => panic!("accepted: {}", prepared.summary),
    }
}

/// Waits for `cancel`'s turn to come: until the command says that it is up.
async fn cancel_when_up(command: &str, how: impl FnOnce(&CancellationToken)) -> (ToolError, Duration) {
    let (bash, cancel) = (bash(), CancellationToken::new());
    let (lines, mut seen) = mpsc::channel(64);
    let context = CallContext { cancel: cancel.clone(), progress: Progress::new(lines) };
    let run = bash.prepare(json!({ "command": command })).unwrap().run;
    let mut call = run(context);
    tokio::select! {
        _ = &mut call => panic!("it ended by itself"),
        line = seen.recv() => assert_eq!(line.as_deref(), Some("up")),
    }
    let began = Instant::now();
    how(&cancel);
    let error = call.await.unwrap_err();
    (error, began.elapsed())
}

/// A sleep with a length of its own, so that a test finds its own processes.
fn nap() -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("sleep {}.{next}", 100_000 + std::process::id())
}

/// Whether a process with that command line lives, in the whole machine.
fn lives(nap: &str) -> bool {
    let wanted = nap.replace(' ', "\0") + "\0";
    let lines =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines.into_iter().any(|line| line == wanted.as_bytes())
}

#[test]
fn the_schema_advertises_the_ceiling_and_needs_only_a_command() {
    let spec = bash().spec();
    assert_eq!(spec.name, "bash");
    let timeout = &spec.parameters["properties"]["timeout_seconds"];
    assert_eq!(
        (&timeout["maximum"], &timeout["minimum"], &timeout["type"]),
        (&json!(14_400), &json!(1), &json!("integer"))
    );
    assert!(timeout["description"].as_str().unwrap().ends_with("Default 600."));
    assert_eq!(spec.parameters["required"], json!(["command"]));
    assert_eq!(spec.parameters["additionalProperties"], json!(false));
}

#[test]
fn what_is_not_allowed_is_refused_before_anybody_is_asked() {
    assert!(refused(json!({ "command": "true", "timeout_seconds": 14_401 })).contains("14400"));
    assert!(refused(json!({ "command": "true", "timeout_seconds": 0 })).contains("at least 1"));
    assert!(refused(json!({ "command": " \n" })).contains("empty"));
    assert!(refused(json!({ "command": "a\0b" })).contains("NUL"));
    assert!(refused(json!({ "command": "x".repeat(COMMAND_BYTES + 1) })).contains("script"));
    for odd in [json!({}), json!({ "command": 1 }), json!({ "command": "true", "cwd": "/" }), json!([])] {
        refused(odd);
    }
}

#[test]
fn the_summary_shows_command_directory_and_the_limit_in_force() {
    let bash = bash();
    let prepared = bash.prepare(json!({ "command": "ls\nrm \x1b[2K x", "timeout_seconds": 30 })).ok().unwrap();
    assert_eq!(prepared.summary, "Run in / for at most 30 s:\nls\nrm \\u{1b}[2K x");
    assert_eq!((prepared.risk, prepared.limit), (Risk::Process, Some(Duration::from_secs(30))));
    let prepared = bash.prepare(json!({ "command": "ls" })).ok().unwrap();
    assert_eq!(prepared.limit, Some(Duration::from_mins(10)));
}

#[tokio::test]
async fn a_result_has_status_and_both_streams_in_order_with_sorted_fields() {
    let text = call(&bash(), json!({ "command": "echo a; echo b >&2; echo c; exit 3" })).await.unwrap();
    assert_eq!(
        text,
        Output {
            text: r#"{"exit_status":"exit status: 3","output":"a\nb\nc\n","output_bytes":6,"truncated":false}"#.into(),
            success: false,
            truncated: false,
        }
    );
    assert_eq!(output("kill -9 $$").await.1["exit_status"], "signal: 9");
}

#[tokio::test]
async fn it_is_a_login_shell_in_the_workspace_with_no_input_and_its_tags() {
    let (success, result) =
        output("shopt -q login_shell && cat && pwd && echo $SCV_DELEGATION_DEPTH ${SCV_PARENT%%/*}").await;
    assert!(success, "{result}");
    assert_eq!(result["output"], "/\n0 0123abcd\n");
}

#[tokio::test]
async fn a_large_command_runs() {
    let command = format!("echo {} | wc -c", "x".repeat(COMMAND_BYTES - 20));
    assert_eq!(output(&command).await.1["output"], format!("{}\n", COMMAND_BYTES - 19));
}

#[tokio::test]
async fn of_a_long_output_head_and_tail_are_kept() {
    let (_, result) = output("echo start; seq 100000; echo the error").await;
    let text = result["output"].as_str().unwrap();
    assert!(text.starts_with("start\n1\n") && text.ends_with("\n100000\nthe error\n"), "{}", text.len());
    assert!(text.contains("bytes left out") && text.len() < (1 << 16) + 100);
    assert_eq!((&result["truncated"], &result["output_bytes"]), (&json!(true), &json!(588_911)));
}

#[tokio::test]
async fn binary_output_is_described() {
    let (_, result) = output("head -c 100000 /dev/zero").await;
    assert!(
        result["output"].as_str().unwrap().starts_with("[binary output, 100000 bytes, begins with 00 00"),
        "{result}"
    );
}

#[tokio::test]
async fn what_is_left_in_the_background_is_ended_and_named_at_once() {
    for hide in ["", "setsid ", "setsid --fork ", "env -i setsid --fork ", "nohup "] {
        let nap = nap();
        let began = Instant::now();
        let (success, result) = output(&format!("{hide}{nap} & echo done")).await;
        let took = began.elapsed();
        assert!(success && !lives(&nap), "{hide}");
        assert!(result["output"].as_str().unwrap().contains("done\n"), "{hide}: {result}");
        assert!(result["ended"].as_array().is_some_and(|ended| !ended.is_empty()), "{hide}: {result}");
        // 100 ms of drain where the pipe is held, and a login shell's start.
        assert!(took < Duration::from_millis(900), "{hide} took {took:?}");
    }
}

#[tokio::test]
async fn a_slow_tee_behind_the_shell_is_waited_for() {
    let (_, result) = output("echo a > >(sleep 0.03; cat)").await;
    assert_eq!(result["output"], "a\n");
}

#[tokio::test]
async fn a_cancel_ends_children_at_once_and_keeps_what_was_said() {
    let nap = nap();
    let (error, took) =
        cancel_when_up(&format!("{nap} & setsid {nap} & echo up; wait"), CancellationToken::cancel).await;
    assert!(took < Duration::from_millis(500), "took {took:?}");
    assert!(!lives(&nap));
    let ToolError::Cancelled(text) = error else { panic!("{error:?}") };
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["output"], "up\n");
}

#[tokio::test]
async fn what_ignores_term_is_killed_two_seconds_after_a_cancel() {
    let nap = nap();
    let script = format!("trap '' TERM; echo up; {nap}; {nap}");
    let (error, took) = cancel_when_up(&script, CancellationToken::cancel).await;
    assert!(matches!(error, ToolError::Cancelled(_)));
    assert!((GRACE..GRACE + Duration::from_millis(500)).contains(&took), "took {took:?}");
    assert!(!lives(&nap));
}

#[tokio::test]
async fn a_killed_run_ends_as_cancelled() {
    let bash = bash();
    let kill = async {
        loop {
            tokio::task::yield_now().await;
            if let [handle] = bash.runs.handles().as_slice() {
                return bash.runs.kill(handle).await;
            }
        }
    };
    let (result, killed) = tokio::join!(call(&bash, json!({ "command": nap() })), kill);
    assert!(killed && matches!(result, Err(ToolError::Cancelled(_))));
}

#[tokio::test]
async fn a_flood_meets_its_own_limit() {
    let began = Instant::now();
    let error = call(&bash(), json!({ "command": "trap '' TERM; yes & yes", "timeout_seconds": 1 })).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_millis(1900), "took {:?}", began.elapsed());
    let ToolError::Limit(text) = error else { panic!("{error:?}") };
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(result["error"], "killed at its time limit of 1 s, with all that it started");
    assert!(result["output"].as_str().unwrap().len() < (1 << 16) + 100);
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_it_starts_leaves_nothing() {
    let (nap, cancel) = (nap(), CancellationToken::new());
    cancel.cancel();
    let error = cancelled_by(&bash(), json!({ "command": nap }), cancel).await.unwrap_err();
    assert!(matches!(error, ToolError::Cancelled(_)));
    assert!(!lives(&nap));
}

#[tokio::test]
async fn a_dropped_call_is_killed() {
    let (bash, nap) = (bash(), nap());
    let run = call(&bash, json!({ "command": format!("setsid --fork {nap}; {nap}") }));
    let _ = tokio::time::timeout(Duration::from_millis(200), run).await;
    let gone = async {
        while lives(&nap) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), gone).await.unwrap();
}

#[tokio::test]
async fn a_workspace_that_is_gone_is_told() {
    let bash = Bash { cwd: "/no/such/place".into(), ..bash() };
    let error = call(&bash, json!({ "command": "true" })).await.unwrap_err();
    assert!(matches!(&error, ToolError::Failed(text) if text.contains("/no/such/place")), "{error:?}");
}

#[tokio::test]
async fn fifty_calls_leave_no_zombie_and_no_child() {
    let bash = bash();
    let nap = nap();
    for _ in 0..50 {
        call(&bash, json!({ "command": format!("(setsid {nap} >/dev/null 2>&1 &); true | true") })).await.unwrap();
    }
    assert!(!lives(&nap));
    assert_eq!(bash.runs.handles(), Vec::<String>::new());
}
