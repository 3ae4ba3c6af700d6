//! Lines of a byte stream, in bounded memory.

/// A longer line is skipped whole (tools.md, "Results").
pub(crate) const MAX_LINE_BYTES: usize = 4 << 20;

/// Cuts a stream into lines.
#[derive(Default)]
pub(crate) struct Lines {
    unfinished: Vec<u8>,
    skipping: bool,
}

impl Lines {
    /// Takes the next bytes and gives each line that they finish, without its end.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            self.take(&bytes[..end]);
            self.give(&mut each);
            bytes = &bytes[end + 1..];
        }
        self.take(bytes);
    }

    /// Gives the last line, if it had no end.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.unfinished.is_empty() {
            self.give(&mut each);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.skipping || self.unfinished.len() + bytes.len() > MAX_LINE_BYTES {
            self.skipping = true;
            self.unfinished = Vec::new();
        } else {
            self.unfinished.extend_from_slice(bytes);
        }
    }

    fn give(&mut self, each: &mut impl FnMut(&[u8])) {
        if !std::mem::take(&mut self.skipping) {
            each(self.unfinished.strip_suffix(b"\r").unwrap_or(&self.unfinished));
        }
        self.unfinished.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(stream: &[u8], chunk: usize) -> Vec<Vec<u8>> {
        let (mut found, mut lines) = (Vec::new(), Lines::default());
        for bytes in stream.chunks(chunk) {
            lines.push(bytes, |line| found.push(line.to_vec()));
        }
        lines.finish(|line| found.push(line.to_vec()));
        found
    }

    #[test]
    fn lines_are_the_same_wherever_the_chunks_end() {
        let expected: Vec<Vec<u8>> = [&b"one"[..], b"", b"two", b"three"].map(<[u8]>::to_vec).to_vec();
        for chunk in 1..12 {
            assert_eq!(lines(b"one\n\r\ntwo\r\nthree", chunk), expected, "chunks of {chunk}");
        }
    }

    #[test]
    fn a_line_over_the_limit_is_skipped_and_the_next_one_is_read() {
        let mut stream = vec![b'x'; MAX_LINE_BYTES + 1];
        stream.extend_from_slice(b"\nnext\n");
        assert_eq!(lines(&stream, 64 << 10), [b"next".to_vec()]);
        stream.remove(0);
        assert_eq!(lines(&stream, 64 << 10).len(), 2, "a line of exactly the limit is read");
    }

    #[test]
    fn what_is_skipped_costs_no_memory() {
        let mut lines = Lines::default();
        for _ in 0..200 {
            lines.push(&vec![b'x'; 64 << 10], |_| ());
        }
        assert_eq!(lines.unfinished.capacity(), 0);
    }
}
