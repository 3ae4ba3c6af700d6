//! Lines, descriptors and raw bytes on one stream socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::{MAX_HAND_OVER_BYTES, MAX_LINE_BYTES};

/// What is read at a time.
const CHUNK_BYTES: usize = 16 << 10;

/// What comes with [`super::ToWorker::Client`].
#[derive(Debug)]
pub struct HandOver {
    /// The client's connection.
    pub socket: OwnedFd,
    /// What was read from it and not answered.
    pub bytes: Vec<u8>,
}

/// The two directions of a link.
pub fn split(stream: UnixStream) -> (LinkReader, LinkWriter) {
    let stream = Arc::new(stream);
    (LinkReader { stream: stream.clone(), buffer: Vec::new(), sockets: VecDeque::new() }, LinkWriter { stream })
}

/// Reads messages. Cancel-safe: what was read stays here.
#[derive(Debug)]
pub struct LinkReader {
    stream: Arc<UnixStream>,
    buffer: Vec<u8>,
    sockets: VecDeque<OwnedFd>,
}

impl LinkReader {
    /// The next message; `None` when the other side is gone. `raw` gives the number of bytes
    /// that follow the message's line; for a message with any, a descriptor comes with it.
    pub async fn next<M: DeserializeOwned>(
        &mut self,
        raw: impl Fn(&M) -> Option<usize>,
    ) -> io::Result<Option<(M, Option<HandOver>)>> {
        loop {
            if let Some(found) = self.take(&raw)? {
                return Ok(Some(found));
            }
            if self.receive().await? == 0 {
                return Ok(None);
            }
        }
    }

    fn take<M: DeserializeOwned>(
        &mut self,
        raw: &impl Fn(&M) -> Option<usize>,
    ) -> io::Result<Option<(M, Option<HandOver>)>> {
        let Some(end) = self.buffer.iter().position(|b| *b == b'\n') else {
            return if self.buffer.len() > MAX_LINE_BYTES { Err(invalid("a line over its limit")) } else { Ok(None) };
        };
        let message: M = serde_json::from_slice(&self.buffer[..end]).map_err(io::Error::from)?;
        let Some(len) = raw(&message) else {
            self.forget(end + 1);
            return Ok(Some((message, None)));
        };
        if len > MAX_HAND_OVER_BYTES {
            return Err(invalid("a hand-over over its limit"));
        }
        if self.buffer.len() < end + 1 + len {
            return Ok(None);
        }
        let bytes = self.buffer[end + 1..end + 1 + len].to_vec();
        self.forget(end + 1 + len);
        let socket = self.sockets.pop_front().ok_or_else(|| invalid("a hand-over without its descriptor"))?;
        Ok(Some((message, Some(HandOver { socket, bytes }))))
    }

    async fn receive(&mut self) -> io::Result<usize> {
        let Self { stream, buffer, sockets } = self;
        stream
            .async_io(Interest::READABLE, || {
                // Here, where something is to be read: a link that is idle holds no memory.
                let mut chunk = [0; CHUNK_BYTES];
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
                let mut ancillary = RecvAncillaryBuffer::new(&mut space);
                let mut parts = [IoSliceMut::new(&mut chunk)];
                let got = recvmsg(stream.as_fd(), &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
                for message in ancillary.drain() {
                    if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                        sockets.extend(descriptors);
                    }
                }
                buffer.extend_from_slice(&chunk[..got.bytes]);
                Ok(got.bytes)
            })
            .await
    }

    /// Drops the first `len` bytes, and with the last of them their memory.
    fn forget(&mut self, len: usize) {
        self.buffer.drain(..len);
        if self.buffer.is_empty() {
            self.buffer = Vec::new();
        }
    }
}

/// Writes messages, one at a time. Not cancel-safe: a send that was dropped breaks the link.
#[derive(Debug)]
pub struct LinkWriter {
    stream: Arc<UnixStream>,
}

impl LinkWriter {
    /// Sends a message.
    pub async fn send<M: Serialize>(&mut self, message: &M) -> io::Result<()> {
        self.write(&line(message)?, None).await
    }

    /// Sends a message with a descriptor, and `bytes` after its line.
    pub async fn hand_over<M: Serialize>(
        &mut self,
        message: &M,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
    ) -> io::Result<()> {
        let mut all = line(message)?;
        all.extend_from_slice(bytes);
        self.write(&all, Some(socket)).await
    }

    async fn write(&mut self, bytes: &[u8], mut socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut left = bytes;
        while !left.is_empty() {
            // One sendmsg takes what the socket buffer has room for; the descriptor goes with the first.
            let sent = self
                .stream
                .async_io(Interest::WRITABLE, || {
                    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                    let mut ancillary = SendAncillaryBuffer::new(&mut space);
                    let sockets = socket.as_slice();
                    if !sockets.is_empty() {
                        ancillary.push(SendAncillaryMessage::ScmRights(sockets));
                    }
                    Ok(sendmsg(self.stream.as_fd(), &[IoSlice::new(left)], &mut ancillary, SendFlags::NOSIGNAL)?)
                })
                .await?;
            socket = None;
            left = &left[sent..];
        }
        Ok(())
    }
}

fn line<M: Serialize>(message: &M) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    if line.len() > MAX_LINE_BYTES { Err(invalid("a line over its limit")) } else { Ok(line) }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} on the link"))
}
