//! Text of a model in a summary that a person decides on: nothing in it may act on the terminal or
//! make the text read other than it is.

/// `text` with control characters and those that turn the direction of writing spelled out.
pub(super) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => shown.push_str("    "),
            _ if c.is_control() || turns_direction(c) => shown.extend(c.escape_default()),
            _ => shown.push(c),
        }
    }
    shown
}

/// The marks and overrides of the bidirectional algorithm (UAX #9, table 1) and the line
/// separators that a terminal may obey.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_spelled_out() {
        assert_eq!(visible("a\u{1b}[2J\nb\u{202e}c\td 漢字 👩\u{200d}🔬"), r"a\u{1b}[2J\nb\u{202e}c    d 漢字 👩‍🔬");
    }
}
