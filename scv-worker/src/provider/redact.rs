//! The provider's own words, fit to be shown: no key, no organisation, one line.
//!
//! The words may travel on to a chat, so what only looks like a key goes too.

use shared::secret::{MASKED, Mask};
use shared::text::one_line;

/// Longest text of a provider in a message.
const WORDS_BYTES: usize = 300;
/// Prefixes of keys and account names (`OpenAI` and its relays, `xAI`, `GitHub`, `Google`).
const PREFIXES: [&str; 14] =
    ["AIza", "acct_", "acct-", "ghp_", "gsk_", "key-", "org-", "org_", "proj-", "proj_", "sk-", "sk_", "user-", "xai-"];
/// A run of letters and digits that long is a token, no word.
const TOKEN_BYTES: usize = 32;

/// `text` as one line of at most 300 bytes, without what `mask` knows and whatever looks like a key.
pub(super) fn words(text: &str, mask: &Mask) -> String {
    // Cut after the masking: half a key would not be recognised.
    let start = &text[..shared::text::floor(text, 16 * WORDS_BYTES)];
    one_line(&mask_tokens(&mask.apply(start)), WORDS_BYTES)
}

fn mask_tokens(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_token_char) {
        let (before, tail) = rest.split_at(start);
        let end = tail.find(|c| !is_token_char(c)).unwrap_or(tail.len());
        let (token, after) = tail.split_at(end);
        masked.push_str(before);
        masked.push_str(if is_secret_like(token) { MASKED } else { token });
        rest = after;
    }
    masked.push_str(rest);
    masked
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*')
}

fn is_secret_like(token: &str) -> bool {
    let prefixed = PREFIXES.iter().any(|prefix| token.len() > prefix.len() + 3 && token.starts_with(prefix));
    let long = token.len() >= TOKEN_BYTES && token.contains(|c: char| c.is_ascii_digit());
    prefixed || long || token.contains("***")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_organisations_are_masked() {
        let text = "Incorrect API key provided: sk-proj-abc****wxyz.\nYour org-Ab12Cd34 (user-99aa77) reached 30000 TPM on gpt-4.1-mini";
        let expected =
            "Incorrect API key provided: [secret]. Your [secret] ([secret]) reached 30000 TPM on gpt-4.1-mini";
        assert_eq!(words(text, &Mask::default()), expected);
    }

    #[test]
    fn a_configured_key_is_masked_whatever_it_looks_like() {
        let mask = Mask::of(["plain words"]);
        assert_eq!(words("you sent plain words, no key", &mask), "you sent [secret], no key");
    }

    #[test]
    fn long_words_are_cut_to_one_line() {
        let text = words(&"漢字 and\nwords ".repeat(1000), &Mask::default());
        assert!(text.len() <= WORDS_BYTES && !text.contains('\n'), "{text}");
    }

    #[test]
    fn model_names_and_plain_words_stay() {
        let text = "The model `gpt-4.1-mini-2025-04-14` does not exist (request req_12ab)";
        assert_eq!(words(text, &Mask::default()), text);
    }
}
