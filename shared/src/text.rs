//! Cutting text where a person or UTF-8 allows it.

/// The largest index `<= at` that is a character boundary of `text`.
pub fn floor(text: &str, at: usize) -> usize {
    text.floor_char_boundary(at)
}

/// The start of `text`, at most `max_bytes` long, marked with `…` where it was cut.
///
/// The mark counts: the result never has more than `max_bytes` (which should be at least 3).
pub fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = floor(text, max_bytes.saturating_sub('…'.len_utf8()));
    format!("{}…", &text[..end])
}

/// One line of at most `max_bytes`: control characters and line ends become blanks.
pub fn one_line(text: &str, max_bytes: usize) -> String {
    // No more is read than can be shown: the text may be a megabyte.
    let start = &text[..floor(text, max_bytes.saturating_mul(2))];
    let flat: String = start.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let flat = flat.trim();
    if start.len() < text.len() && flat.len() <= max_bytes {
        return cut(&format!("{flat}…"), max_bytes);
    }
    cut(flat, max_bytes)
}

/// The head and the tail of `bytes`, together at most `max_bytes`, with a line between them
/// that says how much is missing. Invalid UTF-8 is replaced. The flag tells whether it was cut.
pub fn head_and_tail(bytes: &[u8], max_bytes: usize) -> (String, bool) {
    if bytes.len() <= max_bytes {
        return (String::from_utf8_lossy(bytes).into_owned(), false);
    }
    let half = max_bytes / 2;
    let head = &bytes[..boundary_before(bytes, half)];
    let tail = &bytes[boundary_after(bytes, bytes.len() - half)..];
    (join(head, bytes.len() - head.len() - tail.len(), tail), true)
}

/// `head`, a line that says that `missing` bytes are left out, `tail`.
pub fn join(head: &[u8], missing: usize, tail: &[u8]) -> String {
    format!("{}\n[… {missing} bytes left out …]\n{}", String::from_utf8_lossy(head), String::from_utf8_lossy(tail))
}

/// The largest index `<= at` where no UTF-8 character of `bytes` is cut.
pub fn boundary_before(bytes: &[u8], at: usize) -> usize {
    let mut at = at.min(bytes.len());
    let floor = at.saturating_sub(3);
    while at > floor && at < bytes.len() && is_continuation(bytes[at]) {
        at -= 1;
    }
    at
}

/// The smallest index `>= at` where no UTF-8 character of `bytes` is cut.
pub fn boundary_after(bytes: &[u8], at: usize) -> usize {
    let mut at = at.min(bytes.len());
    let ceiling = (at + 3).min(bytes.len());
    while at < ceiling && is_continuation(bytes[at]) {
        at += 1;
    }
    at
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_exceeds_its_limit_or_splits_a_character() {
        for max in 3..20 {
            let cut = cut("añb🎈c漢字d", max);
            assert!(cut.len() <= max, "{cut:?} has more than {max} bytes");
        }
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer", 5), "lo…");
    }

    #[test]
    fn head_and_tail_say_how_much_is_missing() {
        let (text, cut) = head_and_tail(b"aaaabbbbcccc", 8);
        assert!(cut);
        assert_eq!(text, "aaaa\n[… 4 bytes left out …]\ncccc");
        assert_eq!(head_and_tail(b"aaaa", 4), ("aaaa".to_owned(), false));
    }

    #[test]
    fn head_and_tail_keep_characters_whole() {
        let (text, _) = head_and_tail("漢字漢字漢字".as_bytes(), 8);
        assert!(!text.contains('\u{fffd}'), "{text}");
    }

    #[test]
    fn one_line_has_no_line_end() {
        assert_eq!(one_line("a\nb\tc", 40), "a b c");
        assert!(one_line(&"x\n".repeat(1 << 20), 40).len() <= 40);
    }
}
