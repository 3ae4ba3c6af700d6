//! Hides what looks like a credential in lines that people see: progress, summaries, logs.
//!
//! By look, not by value: [`crate::secret::Mask`] knows the configured values, this guesses the
//! others, and would rather hide too much. Never for bytes that tools work with.

use std::borrow::Cow;

/// What stands for a hidden value.
const HIDDEN: char = '…';

/// How tokens begin, as their issuers document them.
const PREFIXES: &[&str] = &[
    "AIza",
    "AKIA",
    "ASIA",
    "eyJ",
    "ghb_",
    "gho_",
    "ghp_",
    "ghr_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "hf_",
    "npm_",
    "pypi-",
    "rk_live_",
    "sk-",
    "sk_live_",
    "xai-",
    "xapp-",
    "xoxb-",
    "xoxp-",
];

/// Fewer characters after a prefix are a word, not a token.
const TOKEN_REST: usize = 8;

/// `line` with each value hidden that follows `Bearer`, or the name of a key, token, secret or
/// password (`NAME=value`, `--name value`, `name: value`), or that begins as known tokens do.
pub fn line(line: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut done = 0;
    let mut hide_next = Next::Show;
    let mut at = 0;
    while let Some(word) = next_word(line, &mut at) {
        let text = &line[word.clone()];
        let hidden = match hide_next {
            // A flag without its value is followed by another flag.
            Next::Value if !text.starts_with("--") => Some(word.clone()),
            Next::AfterScheme if is_scheme(text) => None,
            Next::AfterScheme => Some(word.clone()),
            _ => value_in(line, word.clone()).or_else(|| token_in(line, word.clone())),
        };
        hide_next = Next::after(text, hide_next);
        let Some(hidden) = hidden else { continue };
        let hidden = to_closing_quote(line, hidden);
        if hidden.is_empty() {
            continue;
        }
        shown.push_str(&line[done..hidden.start]);
        shown.push(HIDDEN);
        done = hidden.end;
        // The same word may go on: `a=secret,b=secret`.
        at = done;
        hide_next = Next::Show;
    }
    if done == 0 {
        return Cow::Borrowed(line);
    }
    shown.push_str(&line[done..]);
    Cow::Owned(shown)
}

/// What becomes of the next word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Show,
    Value,
    AfterScheme,
}

impl Next {
    fn after(word: &str, before: Self) -> Self {
        let bare = word.trim_matches(is_quote);
        if before == Self::AfterScheme || bare.eq_ignore_ascii_case("bearer") {
            return Self::Value;
        }
        if let Some(name) = bare.strip_suffix([':', '=']) {
            let name = name.trim_matches(is_quote);
            return match name_at_end(name) {
                name if name.eq_ignore_ascii_case("authorization") => Self::AfterScheme,
                name if ends_as_credential(name) => Self::Value,
                _ => Self::Show,
            };
        }
        let flag = bare.strip_prefix("--").filter(|name| !name.contains('='));
        if flag.is_some_and(names_credential) { Self::Value } else { Self::Show }
    }
}

/// The next run of characters that are not blank, from `at` on.
fn next_word(line: &str, at: &mut usize) -> Option<std::ops::Range<usize>> {
    let rest = &line[*at..];
    let start = *at + rest.find(|c: char| !c.is_whitespace())?;
    let end = line[start..].find(char::is_whitespace).map_or(line.len(), |length| start + length);
    *at = end;
    Some(start..end)
}

/// The value of a `name=value` or `name:value` in a word, where the name is a credential's.
fn value_in(line: &str, word: std::ops::Range<usize>) -> Option<std::ops::Range<usize>> {
    let text = &line[word.clone()];
    for (index, separator) in text.match_indices(['=', ':']) {
        let name = name_at_end(text[..index].trim_end_matches(is_quote));
        let value = index + 1;
        let found = match separator {
            "=" => names_credential(name),
            // `Key::new` and `token.rs:12` are no values.
            _ => !text[value..].starts_with([':', '/']) && ends_as_credential(name),
        };
        if found && value < text.len() {
            let end = if text[value..].starts_with(is_quote) {
                text.len()
            } else {
                text[value..].find(['&', ',', ';', '"', '\'', '`', ')', '}']).map_or(text.len(), |end| value + end)
            };
            return Some(word.start + value..word.start + end);
        }
        // `https://user:password@host`
        if separator == ":" && text[value..].starts_with("//") {
            let authority = &text[value + 2..];
            let authority = &authority[..authority.find('/').unwrap_or(authority.len())];
            if let Some((user, _)) = authority.rsplit_once('@')
                && let Some(colon) = user.find(':')
            {
                let start = word.start + value + 2;
                return Some(start + colon + 1..start + user.len());
            }
        }
    }
    None
}

/// A token in a word, by its prefix.
fn token_in(line: &str, word: std::ops::Range<usize>) -> Option<std::ops::Range<usize>> {
    let text = &line[word.clone()];
    let in_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let starts = text.char_indices().filter(|(index, _)| !text[..*index].ends_with(in_token));
    for (index, _) in starts {
        let rest = &text[index..];
        let length = rest.find(|c| !in_token(c)).unwrap_or(rest.len());
        if PREFIXES.iter().any(|prefix| rest.starts_with(prefix) && length >= prefix.len() + TOKEN_REST) {
            return Some(word.start + index..word.start + index + length);
        }
    }
    None
}

/// A value that begins with a quote ends with it, also some words later.
fn to_closing_quote(line: &str, value: std::ops::Range<usize>) -> std::ops::Range<usize> {
    let text = &line[value.start..];
    let Some(quote) = text.chars().next().filter(|c| is_quote(*c)) else {
        let quotes = line[value.clone()].chars().rev().take_while(|c| is_quote(*c)).count();
        return value.start..value.end - quotes;
    };
    let start = value.start + 1;
    let end = line[start..].find(quote).map_or(line.len(), |length| start + length);
    start..end
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`')
}

fn is_scheme(word: &str) -> bool {
    ["basic", "bearer", "digest", "token"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// The name that `text` ends with.
fn name_at_end(text: &str) -> &str {
    let start = text.rfind(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')));
    &text[start.map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8))..]
}

fn names_credential(name: &str) -> bool {
    name.split(['_', '-', '.']).any(is_credential)
}

/// Whether the last part of `name` is the name of a credential: `api_key` is, `api_key_env` not.
pub(crate) fn ends_as_credential(name: &str) -> bool {
    name.rsplit(['_', '-', '.']).next().is_some_and(is_credential)
}

fn is_credential(part: &str) -> bool {
    let part = part.to_ascii_lowercase();
    part.ends_with("key")
        || part.ends_with("token")
        || ["secret", "passw", "pwd", "credential"].iter().any(|word| part.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden() {
        for (line, shown) in [
            ("Authorization: Bearer abc.def", "Authorization: Bearer …"),
            ("curl -H 'Authorization: Bearer abc' https://x", "curl -H 'Authorization: Bearer …' https://x"),
            ("authorization: Basic dXNlcg==", "authorization: Basic …"),
            ("Authorization: abcdef", "Authorization: …"),
            ("OPENAI_API_KEY=sk1 cargo run", "OPENAI_API_KEY=… cargo run"),
            ("export PASSWORD='a b c' X=1", "export PASSWORD='…' X=1"),
            ("tool --api-key abc --verbose", "tool --api-key … --verbose"),
            ("tool --token=abc", "tool --token=…"),
            ("tool --password --verbose", "tool --password --verbose"),
            (r#"{"api_key":"abc","n":1}"#, r#"{"api_key":"…","n":1}"#),
            (r#"{"client_secret": "abc def", "n": 1}"#, r#"{"client_secret": "…", "n": 1}"#),
            ("password: hunter2", "password: …"),
            ("GET /x?token=abc&page=2", "GET /x?token=…&page=2"),
            ("git clone https://me:pw@host/r", "git clone https://me:…@host/r"),
            ("found sk-abcdefgh12345678, ok", "found …, ok"),
            ("(ghp_0123456789abcdef)", "(…)"),
            ("a_token=x,b_secret=y", "a_token=…,b_secret=…"),
            ("Bearer", "Bearer"),
        ] {
            assert_eq!(super::line(line), shown);
        }
    }

    #[test]
    fn ordinary_lines_stay() {
        for line in [
            "",
            "   Compiling tokio v1.54.1",
            "error[E0425]: src/token.rs:12:5 no Key::new",
            "input_tokens=5 output_tokens=7",
            "the key is in the door",
            "http://localhost:8080/a",
            "sk-short",
            "漢字=1 🎈: ok",
        ] {
            assert!(matches!(super::line(line), Cow::Borrowed(same) if same == line), "{line}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken(text in "\\PC*") {
            let _ = super::line(&text);
        }

        #[test]
        fn a_named_value_never_shows(value in "[a-zA-Z0-9+/]{4,40}", before in "\\PC{0,20}") {
            let shown = super::line(&format!("{before} MY_TOKEN=zz{value}zz")).into_owned();
            proptest::prop_assert!(!shown.contains(&format!("zz{value}zz")), "{}", shown);
        }
    }
}
