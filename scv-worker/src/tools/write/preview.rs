//! What a write changes, in a few lines, for whoever decides on it.

use super::visible;

/// Lines of the old and of the new content that are shown, each.
const SHOWN_LINES: usize = 12;

/// A shown line is cut here.
const LINE_BYTES: usize = 160;

/// The lines in which `old` and `new` differ: what is left when the same lines at the start and at
/// the end are taken away. Not the smallest difference, but one that is cheap and never misleads.
pub(super) fn lines(old: &str, new: &str) -> String {
    let old: Vec<_> = old.lines().collect();
    let new: Vec<_> = new.lines().collect();
    let head = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[head..], &new[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);

    let mut shown = Vec::new();
    if head > 0 && (!old.is_empty() || !new.is_empty()) {
        shown.push(format!("from line {}", head + 1));
    }
    side('-', old, &mut shown);
    side('+', new, &mut shown);
    shown.join("\n")
}

fn side(sign: char, lines: &[&str], shown: &mut Vec<String>) {
    for line in lines.iter().take(SHOWN_LINES) {
        let line = shared::text::cut(line, LINE_BYTES);
        shown.push(format!("{sign} {}", visible(&line)));
    }
    if let Some(more @ 1..) = lines.len().checked_sub(SHOWN_LINES) {
        shown.push(format!("{sign} … {more} more lines"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        assert_eq!(lines("", "a\nb\n"), "+ a\n+ b");
        assert_eq!(lines("a\nb\nc\n", "a\nB\nc\n"), "from line 2\n- b\n+ B");
        assert_eq!(lines("a\na\n", "a\na\na\n"), "from line 3\n+ a");
        assert_eq!(lines("a\nb\n", "a\n"), "from line 2\n- b");
        assert_eq!(lines("a\n", "a\n"), "");
        assert_eq!(lines("a", ""), "- a");
    }

    #[test]
    fn a_long_change_is_bounded_and_harmless() {
        let new = "\u{1b}[31mx".repeat(1000) + &"\ny".repeat(1000);
        let shown = lines("", &new);
        assert!(shown.len() < 6 * LINE_BYTES + SHOWN_LINES * 4 + 100, "{}", shown.len());
        assert!(!shown.contains('\u{1b}'));
        assert!(shown.ends_with("+ … 989 more lines"), "{shown}");
    }
}
