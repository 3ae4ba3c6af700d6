//! SHA-256 as people and models write it: 64 hex digits, lower case.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Of bytes that are at hand.
pub(crate) fn of(bytes: &[u8]) -> String {
    hex(Sha256::new_with_prefix(bytes))
}

/// Of bytes that were fed to `hash`.
pub(crate) fn hex(hash: Sha256) -> String {
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Whether `text` has the shape of a hash.
pub(crate) fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_nothing_is_the_known_one() {
        // FIPS 180-4.
        assert_eq!(of(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert!(is_hash(&of(b"a")));
        assert!(!is_hash("E3") && !is_hash(&"G".repeat(64)) && !is_hash(&"A".repeat(64)));
    }
}
