//! One process per turn: the prompt is an argument, the answer is its output, and a conversation
//! goes on through the program's own session files.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{self, LocalBoxFuture};
use shared::process::{End, Exit, RunEnd};
use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::timeout;

use super::{Ear, Place, Transport};
use crate::agents::invocation::Invocation;
use crate::runs::{Launch, Running};

/// How long the pipes of a program that has exited are read on: something that it left may hold
/// them open.
const DRAIN: Duration = Duration::from_millis(200);

/// What is read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Default)]
pub(crate) struct Resume {
    // Before the place: when a call is abandoned its processes go before its record.
    run: Option<Running>,
    pipes: Pipes,
    place: Option<Place>,
}

impl Transport for Resume {
    fn open(&mut self, place: Place) -> LocalBoxFuture<'_, io::Result<()>> {
        self.place = Some(place);
        future::ready(Ok(())).boxed_local()
    }

    fn turn<'a>(&'a mut self, ask: &'a Invocation, ear: &'a mut Ear<'_>) -> LocalBoxFuture<'a, io::Result<Exit>> {
        async move {
            let place = self.place.as_ref().ok_or(io::ErrorKind::NotConnected)?;
            let mut run = start(place, ask)?;
            self.pipes = Pipes { stdout: run.take_stdout(), stderr: run.take_stderr() };
            let run = self.run.insert(run);
            let exit = loop {
                tokio::select! {
                    exit = run.exited() => break exit,
                    () = self.pipes.read(ear), if self.pipes.are_open() => {}
                }
            };
            let _ = timeout(DRAIN, self.pipes.read_all(ear)).await;
            Ok(exit)
        }
        .boxed_local()
    }

    fn cancel<'a>(&'a mut self, _: &'a mut Ear<'_>) -> LocalBoxFuture<'a, bool> {
        // A program that runs one prompt has no other way to be stopped than a signal.
        future::ready(false).boxed_local()
    }

    fn close<'a>(self: Box<Self>, how: End, ear: &'a mut Ear<'_>) -> LocalBoxFuture<'a, Option<RunEnd>> {
        let Self { run, mut pipes, place } = *self;
        async move {
            // On record until nothing of it runs.
            let _place = place;
            let ending = run?.end(how);
            tokio::pin!(ending);
            let ended = loop {
                tokio::select! {
                    ended = &mut ending => break ended,
                    // A program that cannot write its last words would not leave in its grace.
                    () = pipes.read(ear), if pipes.are_open() => {}
                }
            };
            let _ = timeout(DRAIN, pipes.read_all(ear)).await;
            Some(ended)
        }
        .boxed_local()
    }
}

fn start(place: &Place, ask: &Invocation) -> io::Result<Running> {
    place.ticket.start(Launch {
        handle: place.ticket.handle(),
        program: ask.program.clone(),
        args: ask.args.iter().map(OsString::from).collect(),
        cwd: place.cwd.clone(),
        env: place.env.clone(),
        depth: place.ticket.depth(),
        // An open one makes programs wait for more of the prompt.
        stdin: Stdio::null(),
        stdout: Stdio::piped(),
        stderr: Stdio::piped(),
    })
}

/// The output of a program, until each is closed.
#[derive(Default)]
struct Pipes {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

impl Pipes {
    fn are_open(&self) -> bool {
        self.stdout.is_some() || self.stderr.is_some()
    }

    /// Reads once from whichever has something. Cancel-safe.
    async fn read(&mut self, ear: &mut Ear<'_>) {
        let mut out = Vec::with_capacity(CHUNK_BYTES);
        let mut err = Vec::with_capacity(CHUNK_BYTES);
        tokio::select! {
            read = next(&mut self.stdout, &mut out), if self.stdout.is_some() => {
                ear.stdout(&out);
                if !read {
                    self.stdout = None;
                    ear.deaf();
                }
            }
            read = next(&mut self.stderr, &mut err), if self.stderr.is_some() => {
                ear.stderr(&err);
                if !read {
                    self.stderr = None;
                }
            }
            else => {}
        }
    }

    async fn read_all(&mut self, ear: &mut Ear<'_>) {
        while self.are_open() {
            self.read(ear).await;
        }
    }
}

/// Whether there was something; a pipe that cannot be read is closed.
async fn next(pipe: &mut Option<impl tokio::io::AsyncRead + Unpin>, into: &mut Vec<u8>) -> bool {
    match pipe {
        Some(pipe) => pipe.read_buf(into).await.is_ok_and(|count| count > 0),
        None => false,
    }
}
