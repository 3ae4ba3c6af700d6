//! The prompt: the arguments, or stdin.

use std::io::{self, Read};

use shared::protocol::limits::PROMPT_BYTES;

use crate::error::CliError;

/// The words joined by blanks; a single `-` reads stdin.
pub(super) fn read(words: &[String]) -> Result<String, CliError> {
    if words == ["-"] { from(io::stdin().lock()) } else { checked(words.join(" ")) }
}

fn from(input: impl Read) -> Result<String, CliError> {
    let mut bytes = Vec::new();
    // One byte more tells "exactly the limit" from "over it".
    let read = input.take(PROMPT_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| CliError::usage("cannot read the prompt from stdin").because(error))?;
    if bytes.len() > PROMPT_BYTES {
        return Err(too_long());
    }
    checked(String::from_utf8(bytes).map_err(|_| CliError::usage("the prompt on stdin is not UTF-8"))?)
}

fn checked(prompt: String) -> Result<String, CliError> {
    if prompt.trim().is_empty() {
        return Err(CliError::usage("the prompt is empty").hint("`scv exec \"what to do\"`"));
    }
    if prompt.len() > PROMPT_BYTES { Err(too_long()) } else { Ok(prompt) }
}

fn too_long() -> CliError {
    CliError::usage(format!("the prompt has more than {} KiB", PROMPT_BYTES >> 10))
        .hint("put the text into a file and name the file in the prompt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_joined_and_stdin_is_read_to_its_end() {
        assert_eq!(read(&["fix".into(), "it".into()]).unwrap(), "fix it");
        assert_eq!(from(&b"a\nb\n"[..]).unwrap(), "a\nb\n");
    }

    #[test]
    fn nothing_too_much_and_no_text_are_refused_with_the_usage_code() {
        let refusals = [read(&[" ".into()]), from(io::repeat(b'x')), from(&b"\xff"[..]), from(io::empty())];
        for refusal in refusals {
            assert_eq!(refusal.unwrap_err().kind.exit_code(), 2);
        }
        assert!(from(io::repeat(b'x').take(PROMPT_BYTES as u64)).is_ok());
    }
}
