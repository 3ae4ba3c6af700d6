//! What a program wrote, kept within a bound while it is read: its head, its tail, its length.
//!
//! The end of a build's output says what failed, and the start says of what, so both are kept and
//! the cut is marked. Bytes that are no text are described.

use std::collections::VecDeque;

use shared::text;

/// More than one such byte in this many, and the output is no text.
const BINARY_SHARE: usize = 10;
/// How many bytes of a binary output are shown.
const SHOWN_BYTES: usize = 16;

/// Output that is read, in memory of at most its limit.
#[derive(Debug)]
pub(crate) struct Captured {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

/// Output as the model gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The text, or what the bytes look like.
    pub text: String,
    /// Length of the output, in bytes.
    pub bytes: u64,
    /// Whether `text` is not all of it.
    pub truncated: bool,
}

impl Captured {
    /// Keeps at most `limit_bytes`.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { half: limit_bytes / 2, head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    /// Takes the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// What is kept, for the model.
    pub(crate) fn show(mut self) -> Shown {
        let tail = self.tail.make_contiguous();
        let kept = self.head.len() + tail.len();
        if is_binary(&self.head, tail) {
            let text = describe(&self.head, self.total);
            return Shown { text, bytes: self.total, truncated: true };
        }
        if kept as u64 == self.total {
            self.head.extend_from_slice(tail);
            return Shown { text: readable(&String::from_utf8_lossy(&self.head)), bytes: self.total, truncated: false };
        }
        let head = &self.head[..whole_end(&self.head)];
        let tail = &tail[text::boundary_after(tail, 0)..];
        let missing = usize::try_from(self.total).unwrap_or(usize::MAX).saturating_sub(head.len() + tail.len());
        Shown { text: readable(&text::join(head, missing, tail)), bytes: self.total, truncated: true }
    }
}

/// Where the last whole character ends.
fn whole_end(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    let start = bytes[from..].iter().rposition(|byte| byte & 0b1100_0000 != 0b1000_0000).map(|at| from + at);
    match start.map(|start| std::str::from_utf8(&bytes[start..])) {
        // The bytes after the last start of a character begin one but do not end it.
        Some(Err(error)) if error.error_len().is_none() => start.unwrap_or(bytes.len()),
        _ => bytes.len(),
    }
}

/// NULs are shown as a sign: in JSON each would take six bytes.
fn readable(text: &str) -> String {
    text.replace('\0', "␀")
}

fn is_binary(head: &[u8], tail: &[u8]) -> bool {
    let odd = [head, tail].into_iter().map(odd_bytes).sum::<usize>();
    odd * BINARY_SHARE > head.len() + tail.len()
}

/// Control characters that no text has, and bytes that are no UTF-8.
fn odd_bytes(bytes: &[u8]) -> usize {
    let control = |c: &char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\x08' | '\x0c' | '\x1b');
    let of = |chunk: std::str::Utf8Chunk<'_>| chunk.valid().chars().filter(control).count() + chunk.invalid().len();
    bytes.utf8_chunks().map(of).sum()
}

fn describe(head: &[u8], total: u64) -> String {
    let shown = &head[..head.len().min(SHOWN_BYTES)];
    let hex: Vec<String> = shown.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[binary output, {total} bytes, begins with {}; write it to a file to work with it]", hex.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(limit: usize, pieces: &[&[u8]]) -> Shown {
        let mut captured = Captured::new(limit);
        for piece in pieces {
            captured.push(piece);
        }
        captured.show()
    }

    #[test]
    fn what_fits_is_whole() {
        assert_eq!(shown(8, &[b"ab", b"cdefgh"]), Shown { text: "abcdefgh".into(), bytes: 8, truncated: false });
        assert_eq!(shown(8, &[]), Shown { text: String::new(), bytes: 0, truncated: false });
    }

    #[test]
    fn head_and_tail_are_kept_and_the_cut_is_marked() {
        let text = "aaaa\n[… 3 bytes left out …]\ncccc";
        for pieces in [&[b"aaaabbbcccc".as_slice()][..], &[b"aa", b"aab", b"bbc", b"c", b"cc"]] {
            assert_eq!(shown(8, pieces), Shown { text: text.into(), bytes: 11, truncated: true });
        }
    }

    #[test]
    fn a_flood_takes_no_more_memory_than_the_limit() {
        let mut captured = Captured::new(1 << 10);
        for _ in 0..1000 {
            captured.push(&vec![b'x'; 64 << 10]);
        }
        assert!(captured.head.capacity() + captured.tail.capacity() <= 4 << 10);
        assert_eq!(captured.show().bytes, 64_000 << 10);
    }

    #[test]
    fn characters_at_the_cut_stay_whole() {
        let shown = shown(11, &["漢字漢字漢字".as_bytes()]);
        assert!(!shown.text.contains('\u{fffd}'), "{}", shown.text);
    }

    #[test]
    fn binary_output_is_described_and_text_with_a_few_nuls_is_shown() {
        let binary = shown(64, &[b"\x7fELF\0\0\0\0\x01\x02"]);
        assert_eq!(
            binary.text,
            "[binary output, 10 bytes, begins with 7f 45 4c 46 00 00 00 00 01 02; write it to a file to work with it]"
        );
        assert_eq!(shown(64, &[b"./a/long/name\0./b/long/name\0"]).text, "./a/long/name␀./b/long/name␀");
        let coloured = "Z\u{fc}rich \u{1b}[1mbold\u{1b}[0m";
        assert_eq!(shown(64, &[coloured.as_bytes()]).text, coloured);
    }
}
