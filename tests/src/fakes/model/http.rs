//! One connection: requests are read, replies written by hand, chunk by chunk.

use std::io;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::reply::Step;
use super::{Reply, Request, Script};

/// Longest head and body of a request; a whole conversation fits.
const REQUEST_BYTES: usize = 64 << 20;

/// Serves `socket` until either side closes it.
pub(super) async fn serve(socket: TcpStream, script: &Script) {
    // A client that leaves in the middle is a test's business, not an error.
    let _ = socket.set_nodelay(true);
    let (reader, writer) = socket.into_split();
    let mut connection = Connection { reader, writer, unread: Vec::new() };
    while let Ok(Some(request)) = connection.request().await {
        let reply = script.reply(&request);
        if !matches!(connection.reply(reply).await, Ok(true)) {
            return;
        }
    }
}

struct Connection {
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
    /// Read, but not used yet.
    unread: Vec<u8>,
}

impl Connection {
    /// The next request; `None` at the end.
    async fn request(&mut self) -> io::Result<Option<Request>> {
        let head = loop {
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                break self.unread.drain(..end + 4).collect::<Vec<u8>>();
            }
            if self.read().await? == 0 {
                return Ok(None);
            }
        };
        let mut request = parse_head(&head).ok_or(io::ErrorKind::InvalidData)?;
        if request.header("expect").is_some() {
            self.writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        while self.unread.len() < length {
            if self.read().await? == 0 {
                return Ok(None);
            }
        }
        let body: Vec<u8> = self.unread.drain(..length).collect();
        request.body = serde_json::from_slice(&body).unwrap_or_default();
        request.bytes = body;
        Ok(Some(request))
    }

    async fn read(&mut self) -> io::Result<usize> {
        if self.unread.len() > REQUEST_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.reader.read_buf(&mut self.unread).await
    }

    /// Sends `reply`; false where the connection ends with it.
    async fn reply(&mut self, reply: Reply) -> io::Result<bool> {
        let piece = reply.piece;
        if !reply.status.is_empty() {
            let headers = reply.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
            let head = format!(
                "HTTP/1.1 {}\r\n{}transfer-encoding: chunked\r\n\r\n",
                reply.status,
                headers.collect::<String>()
            );
            self.writer.write_all(head.as_bytes()).await?;
        }
        for step in reply.into_steps() {
            match step {
                Step::Bytes(bytes) => self.body(&bytes, piece).await?,
                Step::Cut => return Ok(false),
                Step::Pause(time) => {
                    if !self.unless_left(tokio::time::sleep(time)).await {
                        return Ok(false);
                    }
                }
                Step::Gate(gate) => {
                    if !self.unless_left(gate.pass()).await {
                        gate.leave();
                        return Ok(false);
                    }
                }
                Step::Repeat(bytes, every, gate) => {
                    while !self.passed_within(every, &gate).await {
                        if self.body(&bytes, piece).await.is_err() {
                            gate.leave();
                            return Ok(false);
                        }
                    }
                }
            }
        }
        self.writer.write_all(b"0\r\n\r\n").await?;
        Ok(true)
    }

    async fn passed_within(&self, time: Duration, gate: &super::Gate) -> bool {
        tokio::time::timeout(time, gate.pass()).await.is_ok()
    }

    /// Sends `bytes` as chunks of at most `piece`, each in a segment of its own.
    async fn body(&mut self, bytes: &[u8], piece: Option<usize>) -> io::Result<()> {
        for chunk in bytes.chunks(piece.unwrap_or(usize::MAX).min(bytes.len().max(1))) {
            let mut framed = format!("{:x}\r\n", chunk.len()).into_bytes();
            framed.extend_from_slice(chunk);
            framed.extend_from_slice(b"\r\n");
            self.writer.write_all(&framed).await?;
            if piece.is_some() {
                // Lets the client read this piece before the next one is there.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Waits for `wait`; false where the client left before it was over.
    async fn unless_left(&mut self, wait: impl Future<Output = ()>) -> bool {
        tokio::pin!(wait);
        loop {
            tokio::select! {
                () = &mut wait => return true,
                read = self.reader.read_buf(&mut self.unread) => if !matches!(read, Ok(1..)) { return false },
            }
        }
    }
}

fn parse_head(head: &[u8]) -> Option<Request> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let headers = lines.filter_map(|line| line.split_once(':'));
    Some(Request {
        method: first.next()?.to_owned(),
        path: first.next()?.to_owned(),
        headers: headers.map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned())).collect(),
        body: Value::Null,
        bytes: Vec::new(),
        at: SystemTime::now(),
    })
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
