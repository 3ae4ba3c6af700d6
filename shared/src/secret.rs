//! Keeps known secret values out of what people and models see.
//!
//! By value, not by how a key looks: only what is configured as a secret is masked, and bytes
//! that are passed to tools are never altered.

use std::borrow::Cow;

/// What stands for a secret.
pub const MASKED: &str = "[secret]";

/// A shorter value is no secret worth masking: it would blank out ordinary words.
const SHORTEST_BYTES: usize = 6;

/// Replaces known values. Debug shows none.
#[derive(Clone, Default)]
pub struct Mask(Vec<String>);

impl Mask {
    /// A mask for `values`; those under 6 bytes are left out.
    pub fn of<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut values: Vec<String> =
            values.into_iter().filter(|value| value.len() >= SHORTEST_BYTES).map(String::from).collect();
        // Longest first: a value that contains another one is masked whole.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self(values)
    }

    /// `text` with every known value replaced.
    pub fn apply<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for value in &self.0 {
            if text.contains(value.as_str()) {
                text = Cow::Owned(text.replace(value.as_str(), MASKED));
            }
        }
        text
    }
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask({} values)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_masked_wherever_it_stands_and_short_ones_are_not() {
        let mask = Mask::of(["sk-123456", "sk-123456-long", "a"]);
        assert_eq!(mask.apply("a=sk-123456-long, b=sk-123456"), "a=[secret], b=[secret]");
        assert!(matches!(mask.apply("nothing"), Cow::Borrowed("nothing")));
        assert!(!format!("{mask:?}").contains("sk-"));
    }
}
