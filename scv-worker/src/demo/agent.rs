//! The demo's agent: a program that speaks like a coding agent's CLI, and leaves a process behind
//! on purpose, so that the demo can show that it goes.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// The adapter whose output format it speaks; only the demo's configuration names this program.
pub(super) const ADAPTER: &str = "codex";

/// What it runs and reports.
const COMMAND: &str = "ls -l";

/// Runs one prompt: the last of `arguments`.
pub(crate) fn run(arguments: &[OsString]) -> io::Result<()> {
    let prompt = arguments.last().map(|prompt| prompt.to_string_lossy().into_owned()).unwrap_or_default();
    say(&json!({"type": "thread.started", "thread_id": uuid::Uuid::now_v7().to_string()}))?;
    say(&json!({"type": "turn.started"}))?;
    leave_something_behind()?;
    let item = |status: &str, code: Option<i32>| {
        json!({"id": "item_1", "type": "command_execution", "command": COMMAND, "aggregated_output": "",
            "exit_code": code, "status": status})
    };
    say(&json!({"type": "item.started", "item": item("in_progress", None)}))?;
    let output = Command::new("/bin/sh").args(["-c", &format!("{COMMAND}; sleep 0.8")]).output()?;
    say(&json!({"type": "item.completed", "item": item("completed", output.status.code())}))?;
    let files = String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.starts_with('-')).count();
    let text = format!("I was asked: {prompt} I see {files} files here.");
    say(&json!({"type": "item.completed", "item": {"id": "item_2", "type": "agent_message", "text": text}}))?;
    say(&json!({"type": "turn.completed", "usage": {"input_tokens": 12, "output_tokens": 9}}))
}

/// A process of its own session with an empty environment: what leaks with other tools.
fn leave_something_behind() -> io::Result<()> {
    Command::new("/usr/bin/env")
        .args(["-i", "/usr/bin/setsid", "/bin/sleep", "600"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
}

fn say(event: &Value) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{event}")?;
    stdout.flush()
}
