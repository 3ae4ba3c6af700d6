//! One pipe for stdout and stderr, so that what was written first is read first.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

/// What a pipe holds (pipe(7)).
const CHUNK: usize = 64 << 10;

/// The end that is read.
pub(super) struct Pipe {
    /// `None` after the end.
    receiver: Option<Receiver>,
    chunk: Box<[u8]>,
}

/// The ends that are written.
pub(super) struct Ends {
    pub stdout: File,
    pub stderr: File,
}

impl Pipe {
    pub(super) fn new() -> io::Result<(Self, Ends)> {
        let (read, write) = io::pipe()?;
        let stdout = File::from(OwnedFd::from(write));
        let stderr = stdout.try_clone()?;
        let receiver = Receiver::from_owned_fd(read.into())?;
        let pipe = Self { receiver: Some(receiver), chunk: vec![0; CHUNK].into_boxed_slice() };
        Ok((pipe, Ends { stdout, stderr }))
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.receiver.is_none()
    }

    /// The next bytes; none once, at the end, and never again after it. Cancel-safe.
    pub(super) async fn read(&mut self) -> &[u8] {
        let Some(receiver) = &mut self.receiver else { return std::future::pending().await };
        // A pipe that cannot be read any more is at its end.
        let count = receiver.read(&mut self.chunk).await.unwrap_or(0);
        if count == 0 {
            self.receiver = None;
        }
        &self.chunk[..count]
    }
}
