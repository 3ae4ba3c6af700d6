//! One client's connection: frames in, lines out, both bounded.
//!
//! Knows nothing of sessions. A reader task turns bytes into [`Input`]s, a writer task empties the
//! [`Outbound`] queue; both end with the connection.

mod half;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use shared::protocol::client::Peer;
use shared::protocol::frame::{Decoder, Frame};
use shared::protocol::limits;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{ClientId, Input};
use half::Half;

/// Lines are written together up to this size: one system call for many deltas.
const WRITE_BATCH_BYTES: usize = 64 << 10;

/// A client that was handed over, or our own standard streams.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Who it said it is.
    pub peer: Peer,
    /// The features in force.
    pub features: Vec<String>,
    /// The connection itself.
    pub io: Io,
    /// What was read of it and not answered.
    pub first: Vec<u8>,
}

/// Where the bytes go.
#[derive(Debug)]
pub(crate) enum Io {
    /// A client's socket.
    Socket(UnixStream),
    /// Our standard input and output.
    Stdio,
}

impl Io {
    fn output(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Socket(stream) => stream.as_fd().try_clone_to_owned(),
            Self::Stdio => io::stdout().as_fd().try_clone_to_owned(),
        }
    }

    fn split(self) -> (Box<dyn AsyncRead + Unpin>, Box<dyn AsyncWrite + Unpin>) {
        match self {
            Self::Socket(stream) => {
                let stream = Arc::new(stream);
                (Box::new(Half(stream.clone())), Box::new(Half(stream)))
            }
            Self::Stdio => (Box::new(tokio::io::stdin()), Box::new(tokio::io::stdout())),
        }
    }
}

/// Starts the two tasks of a connection; `inputs` gets what comes in, `room` is told whenever
/// the outbound queue became shorter.
pub(crate) fn run(
    id: ClientId,
    io: Io,
    first: Vec<u8>,
    inputs: mpsc::Sender<Input>,
    room: Rc<Notify>,
) -> io::Result<Rc<Outbound>> {
    let out = Rc::new(Outbound {
        queue: RefCell::default(),
        changed: Notify::new(),
        room,
        is_socket: matches!(io, Io::Socket(_)),
        socket: io.output()?,
        given: CancellationToken::new(),
        rest: RefCell::default(),
    });
    let (read, write) = io.split();
    let (give, rest) = oneshot::channel();
    *out.rest.borrow_mut() = Some(rest);
    tokio::task::spawn_local(read_frames(id, read, first, inputs.clone(), out.given.clone(), give));
    tokio::task::spawn_local(write_lines(id, write, out.clone(), inputs));
    Ok(out)
}

async fn read_frames(
    id: ClientId,
    mut read: impl AsyncRead + Unpin,
    first: Vec<u8>,
    inputs: mpsc::Sender<Input>,
    given: CancellationToken,
    give: oneshot::Sender<Vec<u8>>,
) {
    let mut decoder = Decoder::new(limits::CLIENT_FRAME_BYTES);
    decoder.push(&first);
    drop(first);
    let mut chunk = vec![0; 16 << 10];
    loop {
        while let Some(frame) = decoder.next() {
            let input = match frame {
                Frame::Line(line) => Input::Line { client: id, line },
                Frame::TooLong => Input::TooLong { client: id },
            };
            if inputs.send(input).await.is_err() {
                return;
            }
        }
        let read = tokio::select! {
            biased;
            () = given.cancelled() => {
                // Whoever gives the connection away waits for it.
                let _ = give.send(decoder.into_rest());
                return;
            }
            read = read.read(&mut chunk) => read,
        };
        match read {
            Ok(0) | Err(_) => break,
            Ok(read) => decoder.push(&chunk[..read]),
        }
    }
    // Fails only when the session is gone, and then nobody needs to know.
    let _ = inputs.send(Input::Eof { client: id }).await;
}

async fn write_lines(id: ClientId, mut write: impl AsyncWrite + Unpin, out: Rc<Outbound>, inputs: mpsc::Sender<Input>) {
    loop {
        let batch = out.take();
        if batch.is_empty() {
            if out.queue.borrow().closing {
                break;
            }
            tokio::select! {
                () = out.changed.notified() => continue,
                () = out.given.cancelled() => return,
            }
        }
        let written = async {
            write.write_all(&batch).await?;
            write.flush().await
        };
        if written.await.is_err() {
            break;
        }
        out.wrote(batch.len());
    }
    out.queue.borrow_mut().done = true;
    let _ = write.shutdown().await;
    out.room.notify_one();
    let _ = inputs.send(Input::Gone { client: id }).await;
}

/// Lines on their way to a client.
#[derive(Debug)]
pub(crate) struct Outbound {
    queue: RefCell<Queue>,
    changed: Notify,
    room: Rc<Notify>,
    /// A duplicate, to ask the kernel whether the other side is still there.
    socket: OwnedFd,
    is_socket: bool,
    /// Cancelled when the connection goes to another process.
    given: CancellationToken,
    /// What was read then and is no whole line.
    rest: RefCell<Option<oneshot::Receiver<Vec<u8>>>>,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<Rc<[u8]>>,
    /// Bytes in `lines` and in the write under way.
    bytes: usize,
    closing: bool,
    done: bool,
}

impl Queue {
    fn is_idle(&self) -> bool {
        self.bytes == 0 && !self.closing && !self.done
    }
}

impl Outbound {
    /// Queues a line (with its newline).
    pub(crate) fn push(&self, line: Rc<[u8]>) {
        let mut queue = self.queue.borrow_mut();
        if !queue.closing {
            queue.bytes += line.len();
            queue.lines.push_back(line);
            self.changed.notify_one();
        }
    }

    /// Sends an answer at once where nothing waits before it and the socket has room; else queues
    /// it, or what is left of it. Saves the way through the writer task, where somebody waits.
    pub(crate) fn answer(&self, line: Rc<[u8]>) {
        let nothing_waits = self.queue.borrow().is_idle();
        let sent = if nothing_waits && self.is_socket {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            // What fails here fails in the writer task as well, which tells the session.
            rustix::net::send(&self.socket, &line, flags).unwrap_or(0)
        } else {
            0
        };
        if sent < line.len() {
            self.push(if sent == 0 { line } else { line[sent..].into() });
        }
    }

    /// Whether everything was written and the client is there.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.borrow().is_idle() && self.is_socket
    }

    /// Stops reading and writing, and gives the connection away. The receiver gives what was read
    /// and is no whole line, or fails where the client sends nothing more.
    pub(crate) fn give(&self) -> io::Result<(OwnedFd, Option<oneshot::Receiver<Vec<u8>>>)> {
        let socket = self.socket.try_clone()?;
        self.given.cancel();
        Ok((socket, self.rest.borrow_mut().take()))
    }

    /// Whether more may be queued within the protocol's limits.
    pub(crate) fn has_room(&self) -> bool {
        let queue = self.queue.borrow();
        queue.lines.len() < limits::OUTBOUND_FRAMES && queue.bytes < limits::OUTBOUND_BYTES
    }

    /// Whether the client reads so little that even answers no longer fit.
    pub(crate) fn is_overrun(&self) -> bool {
        let queue = self.queue.borrow();
        queue.lines.len() > 2 * limits::OUTBOUND_FRAMES || queue.bytes > 2 * limits::OUTBOUND_BYTES
    }

    /// Sends what is queued, then ends the connection.
    pub(crate) fn close(&self) {
        self.queue.borrow_mut().closing = true;
        self.changed.notify_one();
    }

    /// Drops what is queued and ends the connection.
    pub(crate) fn abandon(&self) {
        self.queue.borrow_mut().lines.clear();
        self.close();
    }

    /// Whether everything was written, or can no longer be.
    pub(crate) fn is_done(&self) -> bool {
        self.queue.borrow().done
    }

    /// Whether the other side is gone, not only done with writing (half-closed).
    pub(crate) fn is_hung_up(&self) -> bool {
        if self.is_done() {
            return true;
        }
        let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
            && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
    }

    fn take(&self) -> Vec<u8> {
        let mut queue = self.queue.borrow_mut();
        let mut batch = Vec::new();
        while let Some(line) = queue.lines.front() {
            if !batch.is_empty() && batch.len() + line.len() > WRITE_BATCH_BYTES {
                break;
            }
            batch.extend_from_slice(line);
            queue.lines.pop_front();
        }
        batch
    }

    fn wrote(&self, bytes: usize) {
        let mut queue = self.queue.borrow_mut();
        queue.bytes = queue.bytes.saturating_sub(bytes);
        self.room.notify_one();
    }
}
