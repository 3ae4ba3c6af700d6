//! Output as lines for people, while it is written.

use shared::redact;

use crate::tools::Progress;

/// A line is cut here; people see far less of it.
const LINE_BYTES: usize = 4 << 10;
/// Of one piece of output no more lines are shown: nobody could read them.
const LINES_A_PIECE: usize = 8;

/// Cuts output into lines and shows them, with what looks like a credential hidden.
pub(super) struct Lines {
    progress: Progress,
    unfinished: Vec<u8>,
}

impl Lines {
    pub(super) fn new(progress: Progress) -> Self {
        Self { progress, unfinished: Vec::new() }
    }

    /// Takes the next bytes. A carriage return ends a line too: that is how progress bars move.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let Some(last) = bytes.iter().rposition(is_end) else {
            self.keep(bytes);
            return;
        };
        let (whole, rest) = bytes.split_at(last);
        let mut lines: Vec<&[u8]> = whole.rsplit(is_end).take(LINES_A_PIECE + 1).collect();
        let begun = std::mem::take(&mut self.unfinished);
        // The first line of this piece began in an earlier one, unless it is not shown at all.
        let first = lines.pop().map(|first| [begun.as_slice(), first].concat());
        if let Some(first) = first.filter(|_| lines.len() < LINES_A_PIECE) {
            self.show(&first);
        }
        for line in lines.into_iter().rev() {
            self.show(line);
        }
        self.keep(&rest[1..]);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES - self.unfinished.len().min(LINE_BYTES);
        self.unfinished.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn show(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES)]);
        self.progress.line(&redact::line(&without_escapes(&line)));
    }
}

/// `line` without terminal sequences: colours mean nothing where it is shown.
fn without_escapes(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c != '\x1b' {
            plain.push(c);
            continue;
        }
        // ESC [ … letter (ECMA-48); any other sequence has one more character here.
        if chars.next() == Some('[') {
            let _ = chars.by_ref().find(|c| ('\x40'..='\x7e').contains(c));
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&[u8]]) -> Vec<String> {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(64);
        let mut lines = Lines::new(Progress::new(sender));
        for piece in pieces {
            lines.push(piece);
        }
        std::iter::from_fn(|| receiver.try_recv().ok()).collect()
    }

    #[test]
    fn lines_are_whole_whatever_the_pieces() {
        for pieces in [&[b"one\ntwo\rthree".as_slice()][..], &[b"o", b"ne", b"\ntw", b"o\r", b"three"]] {
            assert_eq!(shown(pieces), ["one", "two"]);
        }
    }

    #[test]
    fn of_a_flood_the_last_lines_are_shown() {
        let piece = "x\n".repeat(1000) + "y\n";
        let shown = shown(&[piece.as_bytes()]);
        assert_eq!(shown.len(), LINES_A_PIECE);
        assert_eq!(shown.last().map(String::as_str), Some("y"));
    }

    #[test]
    fn credentials_and_colours_do_not_show() {
        assert_eq!(shown(&[b"\x1b[1;31mTOKEN=abc\x1b[0m ok\n"]), ["TOKEN=… ok"]);
    }

    #[test]
    fn a_line_without_end_takes_bounded_memory() {
        let (sender, _receiver) = tokio::sync::mpsc::channel(1);
        let mut lines = Lines::new(Progress::new(sender));
        for _ in 0..100 {
            lines.push(&vec![b'x'; 1 << 16]);
        }
        assert_eq!(lines.unfinished.len(), LINE_BYTES);
    }
}
