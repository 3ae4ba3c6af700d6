//! Server-sent events of a response's body, each with a bound.
//!
//! `eventsource-stream` reads the format, but keeps whatever has no end. So it gets whole events
//! only, cut here at their blank line: none is kept beyond [`Framer`]'s limit, bytes that are no
//! UTF-8 (which it would hold back for ever) are an error, and a byte order mark (on which its
//! 0.2.3 panics) is left out.

use bytes::{Bytes, BytesMut};
use eventsource_stream::{Event, EventStream};
use futures_util::{Stream, stream};
use shared::protocol::limits;

/// Most that an event may be larger for what came before it: text and arguments at their limit,
/// escaped as JSON.
const REPEATED_BYTES: usize = 2 * limits::RESPONSE_BYTES;

/// Why there is no next event.
#[derive(Debug)]
pub(super) enum SseError<E> {
    /// An event is larger than allowed.
    TooLarge,
    /// The bytes are no text.
    NotText,
    /// The body could not be read.
    Body(E),
}

/// The events of `body`. Lines end with `\n` or `\r\n`; an event that the end cuts is dropped.
pub(super) fn events<E>(
    body: impl Stream<Item = Result<Bytes, E>> + Unpin,
) -> impl Stream<Item = Result<Event, SseError<E>>> {
    use eventsource_stream::EventStreamError::{Parser, Transport, Utf8};
    use futures_util::StreamExt;

    let blocks = stream::unfold((body, Framer::default()), |(mut body, mut framer)| async move {
        loop {
            match framer.next() {
                Ok(Some(block)) => return Some((Ok(block), (body, framer))),
                Err(fault) => return Some((Err(fault.into()), (body, framer))),
                Ok(None) => match body.next().await? {
                    Ok(bytes) => framer.push(&bytes),
                    Err(error) => return Some((Err(SseError::Body(error)), (body, framer))),
                },
            }
        }
    });
    EventStream::new(Box::pin(blocks)).map(|event| {
        event.map_err(|error| match error {
            Transport(error) => error,
            Utf8(_) | Parser(_) => SseError::NotText,
        })
    })
}

/// A block that cannot be an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    TooLarge,
    NotText,
}

impl<E> From<Fault> for SseError<E> {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::TooLarge => Self::TooLarge,
            Fault::NotText => Self::NotText,
        }
    }
}

/// Cuts bytes into whole events.
///
/// The last events of a response repeat all that was streamed before them. An event may therefore
/// be as large as [`limits::SSE_EVENT_BYTES`] and what came before it, up to [`REPEATED_BYTES`].
#[derive(Debug, Default)]
struct Framer {
    buffer: BytesMut,
    /// Where the unfinished line starts.
    line: usize,
    /// Up to where `buffer` has been looked at.
    seen: usize,
    /// Bytes of the events so far.
    passed: usize,
    has_begun: bool,
}

impl Framer {
    fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole event or comment, with its line ends.
    fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        while let Some(at) = self.buffer[self.seen..].iter().position(|&byte| byte == b'\n') {
            let end = self.seen + at + 1;
            let line = &self.buffer[self.line..end];
            let is_blank = matches!(line, b"\n" | b"\r\n");
            // A comment before an event is no part of it: keep-alives never add up.
            let is_lone_comment = self.line == 0 && line[0] == b':';
            self.line = end;
            self.seen = end;
            if is_blank || is_lone_comment {
                return self.cut(end, is_blank).map(Some);
            }
        }
        self.seen = self.buffer.len();
        if self.buffer.len() > self.limit() { Err(Fault::TooLarge) } else { Ok(None) }
    }

    fn cut(&mut self, end: usize, is_event: bool) -> Result<Bytes, Fault> {
        if end > self.limit() {
            return Err(Fault::TooLarge);
        }
        let block = self.buffer.split_to(end).freeze();
        self.line = 0;
        self.seen = 0;
        if is_event {
            self.passed = self.passed.saturating_add(end);
        }
        let text = std::str::from_utf8(&block).map_err(|_| Fault::NotText)?;
        let marks = if self.has_begun { 0 } else { text.len() - text.trim_start_matches('\u{feff}').len() };
        self.has_begun = true;
        Ok(block.slice(marks..))
    }

    fn limit(&self) -> usize {
        limits::SSE_EVENT_BYTES + self.passed.min(REPEATED_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    async fn read(chunks: Vec<Vec<u8>>) -> Result<Vec<String>, SseError<()>> {
        let body = stream::iter(chunks.into_iter().map(|chunk| Ok(Bytes::from(chunk))));
        let mut events = Box::pin(events(body));
        let mut data = Vec::new();
        while let Some(event) = events.next().await {
            data.push(event?.data);
        }
        Ok(data)
    }

    #[tokio::test]
    async fn events_are_whole_however_they_are_cut() {
        let body = "\u{feff}: hello\n\nevent: a\r\ndata: 漢字🎈\r\n\r\ndata: b\ndata: c\n\n\n\ndata: cut".as_bytes();
        for size in 1..=body.len() {
            let chunks = body.chunks(size).map(<[u8]>::to_vec).collect();
            assert_eq!(read(chunks).await.unwrap(), ["漢字🎈", "b\nc"], "chunks of {size}");
        }
    }

    #[tokio::test]
    async fn an_event_without_an_end_is_given_up_at_its_limit() {
        let endless = vec![b"data: ".to_vec(), vec![b'x'; limits::SSE_EVENT_BYTES]];
        assert!(matches!(read(endless).await, Err(SseError::TooLarge)));
        let mut whole = vec![b'x'; limits::SSE_EVENT_BYTES];
        whole.splice(0..0, *b"data: ");
        whole.extend_from_slice(b"\n\n");
        assert!(matches!(read(vec![whole]).await, Err(SseError::TooLarge)));
    }

    #[tokio::test]
    async fn an_event_may_repeat_what_came_before_it() {
        let mut half = vec![b'x'; limits::SSE_EVENT_BYTES * 3 / 4];
        half.splice(0..0, *b"data: ");
        half.extend_from_slice(b"\n\n");
        let mut both = half.repeat(2);
        both.retain(|&byte| byte != b'\n');
        both.extend_from_slice(b"\n\n");
        assert_eq!(read(vec![half.clone(), half, both]).await.unwrap().len(), 3);
    }

    #[tokio::test]
    async fn comments_never_add_up_to_an_event() {
        let mut chunks: Vec<Vec<u8>> = vec![b": keep-alive\n".repeat(100_000); 2];
        chunks.push(b"data: x\n\n".to_vec());
        assert_eq!(read(chunks).await.unwrap(), ["x"]);
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_are_an_error() {
        let body = vec![b"data: \xff\n\n".to_vec(), b"data: x\n\n".to_vec()];
        assert!(matches!(read(body).await, Err(SseError::NotText)));
    }
}
