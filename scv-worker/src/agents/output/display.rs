//! Text of an agent, made fit to be shown: short paths, URLs without their query, no credentials.
//!
//! What a credential looks like is [`shared::redact`]'s business.

use std::borrow::Cow;

use shared::redact;

/// No more of a line is looked at; what is shown has 200 bytes.
const LOOKED_AT_BYTES: usize = 2 << 10;

const OPENING: &[char] = &['\'', '"', '`', '(', '[', '{', '<'];
const CLOSING: &[char] = &['\'', '"', '`', ')', ']', '}', '>', ',', ';'];

/// `start` and `text` as one line for people.
pub(crate) fn line(start: &str, text: &str) -> String {
    // Line ends are no ends of values: they would hide the closing quote of one.
    let text = shared::text::one_line(text, LOOKED_AT_BYTES);
    let mut short = String::with_capacity(text.len());
    for word in text.split_inclusive(char::is_whitespace) {
        short.push_str(&shortened(word));
    }
    format!("{start}{}", redact::line(&short))
}

/// The last two components of `path`.
pub(crate) fn path(path: &str) -> String {
    redact::line(&shared::text::one_line(last_two(path), LOOKED_AT_BYTES)).into_owned()
}

/// `text` without what looks like a credential; nothing else is changed.
pub(crate) fn mask(text: &str) -> String {
    text.split_inclusive('\n').map(redact::line).collect()
}

/// One word with what surrounds it, as short as it is shown.
fn shortened(word: &str) -> Cow<'_, str> {
    let core = word.trim_start_matches(OPENING);
    let lead = word.len() - core.len();
    let core = core.trim_end().trim_end_matches(CLOSING);
    let short: Cow<'_, str> = if core.contains("://") {
        bare_url(core).into()
    } else if core.starts_with('/') || core.starts_with("~/") {
        last_two(core).into()
    } else {
        return word.into();
    };
    format!("{}{short}{}", &word[..lead], &word[lead + core.len()..]).into()
}

fn last_two(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    // A slash at the start is the root, no component.
    trimmed.rmatch_indices('/').nth(1).filter(|&(at, _)| at > 0).map_or(path, |(at, _)| &trimmed[at + 1..])
}

/// A URL without user, query and fragment; what comes before its scheme stays (`NAME=https://…`).
fn bare_url(word: &str) -> String {
    let end = word.find(['?', '#']).unwrap_or(word.len());
    let (scheme, rest) = word[..end].split_once("://").unwrap_or(("", &word[..end]));
    let authority = rest.find('/').unwrap_or(rest.len());
    let host = rest[..authority].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[host..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_shows_no_credential_and_no_query() {
        let cases = [
            ("curl -H 'Authorization: Bearer abc.def' x", "curl -H 'Authorization: Bearer …' x"),
            ("GH_TOKEN=abc gh pr list", "GH_TOKEN=… gh pr list"),
            ("PASSWORD=\"a\nb c\" run it", "PASSWORD=\"…\" run it"),
            ("tool --api-key abc --out f", "tool --api-key … --out f"),
            ("git clone https://u:p@host/a/b.git?x=1#f", "git clone https://host/a/b.git"),
            ("curl 'https://h/p?sig=1'", "curl 'https://h/p'"),
            ("A=https://h/p?sig=1", "A=https://h/p"),
            ("https://h?a=1 https://i/?b", "https://h https://i/"),
        ];
        for (text, expected) in cases {
            assert_eq!(line("", text), expected, "{text}");
        }
    }

    #[test]
    fn other_words_stay() {
        for text in ["cargo test --workspace", "/bin/bash -lc 'echo hi'", "a = b : c", "x:y=z", "a/b/c/d"] {
            assert_eq!(line("", text), text);
        }
    }

    #[test]
    fn paths_show_their_last_two_components() {
        assert_eq!(path("/home/u/project/src/main.rs"), "src/main.rs");
        assert_eq!(path("src/main.rs"), "src/main.rs");
        assert_eq!(path("main.rs"), "main.rs");
        assert_eq!(path("/a/b/c/"), "b/c");
        assert_eq!(line("$ ", "cat '/home/u/p/src/a.rs'; x"), "$ cat 'src/a.rs'; x");
    }

    #[test]
    fn an_error_keeps_its_paths_and_lines() {
        assert_eq!(mask("no /a/b/c/d\nAPI_KEY=x y\n"), "no /a/b/c/d\nAPI_KEY=… y\n");
    }

    proptest::proptest! {
        #[test]
        fn any_text_can_be_shown(text in "\\PC{0,200}") {
            let _ = (line("$ ", &text), path(&text), mask(&text));
        }

        #[test]
        fn a_token_is_never_shown(
            before in "[ '\"(=a-z/:]{0,12}", token in "ghp_[A-Za-z0-9]{20}", after in "[ '\")]{0,8}"
        ) {
            let text = format!("{before} {token}{after}");
            proptest::prop_assert!(!line("", &text).contains(&token), "{}", line("", &text));
        }
    }
}
