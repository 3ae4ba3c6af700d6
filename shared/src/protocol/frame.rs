//! Splits a byte stream into lines, bounded.
//!
//! A frame ends only at `\n`; a `\r` before it is dropped. A line over the limit is reported
//! once and skipped to its end, so that the connection stays usable.

/// One frame, without its line end.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A line.
    Line(Vec<u8>),
    /// A line that was over the limit; its bytes are gone.
    TooLong,
}

/// The state of one direction of a connection.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes at the start of `buffer` that hold no newline.
    searched: usize,
    max_line_bytes: usize,
    skipping: bool,
}

impl Decoder {
    /// A decoder of lines of at most `max_line_bytes`, newline excluded.
    pub fn new(max_line_bytes: usize) -> Self {
        Self { buffer: Vec::new(), searched: 0, max_line_bytes, skipping: false }
    }

    /// Takes bytes as they came. Call [`next`](Self::next) until it gives nothing.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame.
    #[allow(clippy::should_implement_trait, reason = "not an iterator: it goes on after None, once more was pushed")]
    pub fn next(&mut self) -> Option<Frame> {
        loop {
            let Some(end) = self.buffer[self.searched..].iter().position(|b| *b == b'\n') else {
                self.searched = self.buffer.len();
                if self.skipping {
                    self.forget();
                } else if self.buffer.len() > self.max_line_bytes {
                    self.forget();
                    self.skipping = true;
                    return Some(Frame::TooLong);
                }
                return None;
            };
            let end = self.searched + end;
            let rest = self.buffer.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.buffer, rest);
            self.searched = 0;
            line.pop();
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if line.len() > self.max_line_bytes {
                return Some(Frame::TooLong);
            }
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            if !line.is_empty() {
                return Some(Frame::Line(line));
            }
        }
    }

    /// Bytes that wait for their line end.
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// What was pushed and not given out, for whoever takes the connection over.
    pub fn into_rest(self) -> Vec<u8> {
        self.buffer
    }

    fn forget(&mut self) {
        self.buffer = Vec::new();
        self.searched = 0;
    }
}
