//! `bash`: one command line, with everything that it starts.
//!
//! The order of causes is cancel, time limit, exit. Whichever comes first, nothing that the
//! command started lives on when the result is told.

mod line;
mod pipe;
mod result;

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use shared::process::{End, GRACE, RunEnd};
use shared::protocol::server::Risk;
use tokio::time::{Instant, sleep_until};

use self::line::Lines;
use self::pipe::Pipe;
use super::captured::Captured;
use super::{CallContext, Output, Prepared, Tool, ToolError};
use crate::provider::ToolSpec;
use crate::runs::{Launch, Running, Runs};

/// The shell. Absolute, so that no `PATH` decides what runs.
const BASH: &str = "/bin/bash";
/// One argument may have 32 pages, its NUL included (`MAX_ARG_STRLEN`, execve(2)).
const COMMAND_BYTES: usize = (128 << 10) - 1;
/// After the shell's exit, what it left in the background may still write for this long. Enough for
/// a `> >(tee log)` to see its end; short, since it is waited for in full when a child holds the pipe.
const DRAIN: Duration = Duration::from_millis(100);

/// The `bash` tool of a session.
pub(crate) struct Bash {
    /// Where commands run.
    pub runs: Runs,
    /// The workspace.
    pub cwd: PathBuf,
    /// Limits from `[tools]`.
    pub limits: Limits,
}

/// Limits of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// `tools.command_timeout_seconds`
    pub default_seconds: u64,
    /// `tools.max_timeout_seconds`
    pub max_seconds: u64,
    /// `tools.output_limit_bytes`
    pub output_bytes: usize,
}

/// Arguments of `bash`, as the model writes them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Passed to `/bin/bash -lc` in the workspace. Standard input is empty. What the command leaves
    /// in the background is ended when the shell exits.
    command: String,
    /// Limit of the call in seconds. At the limit the command is killed; what it wrote so far is
    /// returned.
    timeout_seconds: Option<u64>,
}

impl Tool for Bash {
    fn spec(&self) -> ToolSpec {
        let mut parameters = schemars::schema_for!(Arguments).to_value();
        let Limits { default_seconds, max_seconds, .. } = self.limits;
        let timeout = &mut parameters["properties"]["timeout_seconds"];
        let described = timeout["description"].as_str().unwrap_or_default();
        *timeout = json!({
            "type": "integer",
            "description": format!("{described} Default {}.", default_seconds.min(max_seconds)),
            "minimum": 1,
            "maximum": max_seconds,
        });
        ToolSpec {
            name: "bash".into(),
            description: "Runs a shell command in the workspace and returns its exit status and its output: \
                          stdout and stderr together, in the order in which they came. Of a long output the head \
                          and the tail are returned."
                .into(),
            parameters,
        }
    }

    fn prepare(&self, arguments: Value) -> Result<Prepared<'_>, ToolError> {
        let arguments: Arguments = serde_json::from_value(arguments).map_err(|error| {
            ToolError::Invalid(format!("the arguments of bash are not as its schema says: {error}"))
        })?;
        check(&arguments.command)?;
        let limit = self.limits.timeout(arguments.timeout_seconds)?;
        Ok(Prepared {
            risk: Risk::Process,
            summary: self.summary(&arguments.command, limit),
            limit: Some(limit),
            run: Box::new(move |context| -> LocalBoxFuture<'_, _> {
                Box::pin(async move { self.run(arguments.command, limit, context).await })
            }),
        })
    }
}

impl Limits {
    fn timeout(&self, asked: Option<u64>) -> Result<Duration, ToolError> {
        let max = self.max_seconds;
        match asked.unwrap_or(self.default_seconds.min(max)) {
            0 => Err(ToolError::Invalid("timeout_seconds has to be at least 1".into())),
            seconds if seconds > max => Err(ToolError::Invalid(format!(
                "timeout_seconds {seconds} is over the ceiling of {max} (tools.max_timeout_seconds); nothing was run"
            ))),
            seconds => Ok(Duration::from_secs(seconds)),
        }
    }
}

fn check(command: &str) -> Result<(), ToolError> {
    if command.trim().is_empty() {
        return Err(ToolError::Invalid("the command is empty".into()));
    }
    if command.contains('\0') {
        return Err(ToolError::Invalid("the command holds a NUL, which no program can be given".into()));
    }
    if command.len() > COMMAND_BYTES {
        return Err(ToolError::Invalid(format!(
            "the command has {} bytes, over the system's limit of {COMMAND_BYTES}; write a script and run that",
            command.len()
        )));
    }
    Ok(())
}

impl Bash {
    /// What a person decides on: the whole command, where it runs, for how long. Control characters
    /// are spelled out, so that none can hide a part of it on a terminal.
    fn summary(&self, command: &str, limit: Duration) -> String {
        let mut summary = format!("Run in {} for at most {} s:\n", self.cwd.display(), limit.as_secs());
        for c in command.chars() {
            if c.is_control() && !matches!(c, '\n' | '\t') {
                summary.extend(c.escape_default());
            } else {
                summary.push(c);
            }
        }
        summary
    }

    async fn run(&self, command: String, limit: Duration, context: CallContext) -> Result<Output, ToolError> {
        let (running, pipe) = self
            .start(command)
            .map_err(|error| ToolError::Failed(format!("cannot run {BASH} in {}: {error}", self.cwd.display())))?;
        let reading =
            Reading { pipe, captured: Captured::new(self.limits.output_bytes), lines: Lines::new(context.progress) };
        let call = Command { running, reading, deadline: Instant::now() + limit };
        let (cause, end, captured) = call.finish(&context.cancel).await;
        result::tell(cause, limit, &end, &captured.show())
    }

    fn start(&self, command: String) -> io::Result<(Running, Pipe)> {
        let (pipe, ends) = Pipe::new()?;
        let running = self.runs.start(Launch {
            handle: self.runs.handle("bash"),
            program: BASH.into(),
            args: vec!["-lc".into(), command.into()],
            cwd: self.cwd.clone(),
            env: self.runs.environment().clone(),
            depth: self.runs.depth(),
            stdin: Stdio::null(),
            stdout: ends.stdout.into(),
            stderr: ends.stderr.into(),
        })?;
        Ok((running, pipe))
    }
}

/// What ended a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Cancelled,
    TimeLimit,
    Exit,
}

/// A command that runs.
struct Command {
    running: Running,
    reading: Reading,
    deadline: Instant,
}

struct Reading {
    pipe: Pipe,
    captured: Captured,
    lines: Lines,
}

impl Reading {
    /// Reads once; pending while there is nothing, and for ever after the end.
    async fn some(&mut self) {
        let bytes = self.pipe.read().await;
        self.captured.push(bytes);
        self.lines.push(bytes);
    }

    /// Reads until the end of the pipe.
    async fn all(&mut self) {
        while !self.pipe.is_at_end() {
            self.some().await;
        }
    }
}

impl Command {
    async fn finish(mut self, cancel: &tokio_util::sync::CancellationToken) -> (Cause, RunEnd, Captured) {
        let cause = self.wait(cancel).await;
        let how = match cause {
            Cause::Cancelled => End::Terminate { grace: GRACE },
            Cause::TimeLimit => End::Kill,
            Cause::Exit => {
                // At once unless something in the background holds the pipe.
                let _ = tokio::time::timeout(DRAIN, self.reading.all()).await;
                End::Finished
            }
        };
        let Self { running, mut reading, .. } = self;
        let mut ending = std::pin::pin!(running.end(how));
        let end = loop {
            tokio::select! {
                biased;
                end = &mut ending => break end,
                // Else a program that says good-bye would hang on a full pipe.
                () = reading.some() => {}
            }
        };
        // Nobody of the run writes any more; somebody else may hold the pipe all the same.
        let _ = tokio::time::timeout(DRAIN, reading.all()).await;
        (cause, end, reading.captured)
    }

    /// Reads until something ends the command.
    async fn wait(&mut self, cancel: &tokio_util::sync::CancellationToken) -> Cause {
        let killed = self.running.killed();
        loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Cause::Cancelled,
                () = killed.cancelled() => return Cause::Cancelled,
                // Before the pipe: output that keeps flowing must not hide the limit.
                () = sleep_until(self.deadline) => return Cause::TimeLimit,
                _ = self.running.exited() => return Cause::Exit,
                () = self.reading.some() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
