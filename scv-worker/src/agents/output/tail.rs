//! The end of a stream of any length.

/// Keeps the last bytes of what is pushed.
pub(super) struct Tail {
    bytes: Vec<u8>,
    max: usize,
    cut: bool,
}

impl Tail {
    /// Keeps the last `max` bytes.
    pub(super) fn new(max: usize) -> Self {
        Self { bytes: Vec::new(), max, cut: false }
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(&bytes[bytes.len().saturating_sub(self.max)..]);
        self.cut |= bytes.len() > self.max;
        let excess = self.bytes.len().saturating_sub(self.max);
        if excess > 0 {
            self.bytes.drain(..excess);
            self.cut = true;
        }
    }

    /// What is kept, from a character on, and whether there was more.
    pub(super) fn text(&self) -> (String, bool) {
        let start = if self.cut { shared::text::boundary_after(&self.bytes, 0) } else { 0 };
        (String::from_utf8_lossy(&self.bytes[start..]).into_owned(), self.cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_kept_however_they_arrive() {
        for chunk in [1, 3, 7, 100] {
            let mut tail = Tail::new(8);
            for bytes in b"0123456789abcdef".chunks(chunk) {
                tail.push(bytes);
            }
            assert_eq!(tail.text(), ("89abcdef".to_owned(), true));
        }
    }

    #[test]
    fn a_short_stream_is_whole() {
        let mut tail = Tail::new(8);
        tail.push(b"01234567");
        assert_eq!(tail.text(), ("01234567".to_owned(), false));
    }

    #[test]
    fn no_character_is_split() {
        let mut tail = Tail::new(4);
        tail.push("漢字".as_bytes());
        assert_eq!(tail.text(), ("字".to_owned(), true));
    }
}
