//! From bytes of a file to whole characters.

use std::io;

/// The longest character of UTF-8 (RFC 3629).
pub(super) const CHARACTER_BYTES: u64 = 4;

/// Why a range gives no text. Positions are bytes of the file.
#[derive(Debug, thiserror::Error)]
pub(super) enum RangeError {
    /// Nothing is there.
    #[error("offset {offset} is past the end; the file has {total} bytes")]
    PastTheEnd {
        /// As asked.
        offset: u64,
        /// The file.
        total: u64,
    },
    /// The range would begin with half a character.
    #[error("offset {offset} is inside a character; start at {before} or {after}")]
    InsideCharacter {
        /// As asked.
        offset: u64,
        /// Where the character begins.
        before: u64,
        /// Where the next one begins.
        after: u64,
    },
    /// Not one character fits.
    #[error("the character at {offset} is longer than the limit; ask for at least {CHARACTER_BYTES} bytes")]
    LimitTooSmall {
        /// As asked.
        offset: u64,
    },
    /// Binary, or another encoding.
    #[error("not UTF-8 text at byte {at}; bash can show or convert such a file")]
    NotText {
        /// The first byte that is wrong.
        at: u64,
    },
    /// It could not be read.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
}

/// The text of `bytes[start..]`, where `start` is byte `offset` of the file and what comes before
/// it is only context. A character that the range cuts is left out, unless `to_the_end` says that
/// the file ends here too: then it is an error.
pub(super) fn text(bytes: &[u8], start: usize, offset: u64, to_the_end: bool) -> Result<&str, RangeError> {
    if bytes.get(start).is_some_and(|first| is_continuation(*first)) {
        return Err(half_a_character(bytes, start, offset));
    }
    let range = &bytes[start..];
    let error = match str::from_utf8(range) {
        Ok(text) => return Ok(text),
        Err(error) => error,
    };
    let good = error.valid_up_to();
    if error.error_len().is_some() || to_the_end {
        return Err(RangeError::NotText { at: offset + good as u64 });
    }
    if good == 0 {
        return Err(RangeError::LimitTooSmall { offset });
    }
    // `valid_up_to` is a boundary: this cannot fail.
    str::from_utf8(&range[..good]).map_err(|_| RangeError::NotText { at: offset })
}

/// `bytes[start]` continues a character. Says where that one begins and ends, or that there is
/// none.
fn half_a_character(bytes: &[u8], start: usize, offset: u64) -> RangeError {
    let not_text = RangeError::NotText { at: offset };
    let Some(back) = (1..=start.min(3)).find(|back| !is_continuation(bytes[start - back])) else { return not_text };
    let lead = start - back;
    let width = match bytes[lead] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return not_text,
    };
    if width <= back {
        return not_text;
    }
    let before = offset - back as u64;
    RangeError::InsideCharacter { offset, before, after: before + width as u64 }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8], start: usize, to_the_end: bool) -> String {
        text(bytes, start, 100 + start as u64, to_the_end).unwrap_err().to_string()
    }

    #[test]
    fn a_character_that_the_end_cuts_is_left_out() {
        let bytes = "a漢🎈".as_bytes();
        for (end, expected) in [(8, "a漢🎈"), (7, "a漢"), (5, "a漢"), (4, "a漢"), (3, "a"), (2, "a"), (1, "a")] {
            assert_eq!(text(&bytes[..end], 0, 0, end == 8).unwrap(), expected, "{end}");
        }
    }

    #[test]
    fn a_start_inside_a_character_names_the_boundaries() {
        let bytes = "🎈a".as_bytes();
        for start in 1..=3 {
            let expected = format!("offset {} is inside a character; start at 100 or 104", 100 + start);
            assert_eq!(message(bytes, start, true), expected);
        }
    }

    #[test]
    fn a_range_in_which_no_character_fits_says_so() {
        assert!(message(&"🎈".as_bytes()[..3], 0, false).starts_with("the character at 100 is longer than the limit"));
    }

    #[test]
    fn what_is_no_text_names_the_byte() {
        for (bytes, start, at) in [
            (&b"ab\xff"[..], 0, 102),
            (b"ab\xe6\xbc", 0, 102),
            (b"a\x80", 1, 101),
            (b"\x80\x80\x80\x80", 3, 103),
            (b"\xc3\xa9\x80", 2, 102),
            (b"\xc0\x80", 1, 101),
        ] {
            let expected = format!("not UTF-8 text at byte {at}; bash can show or convert such a file");
            assert_eq!(message(bytes, start, true), expected, "{bytes:?}");
        }
    }
}
