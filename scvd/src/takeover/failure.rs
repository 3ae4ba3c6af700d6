//! What became of a successor that did not come up, in words.

use std::time::Duration;

use shared::text;
use tokio::io::AsyncReadExt as _;
use tokio::process::Child;
use tokio::time::timeout;

/// What is read of its words.
const WORDS_BYTES: u64 = 1 << 10;

/// What it wrote is there by now, or never comes.
const WORDS_WITHIN: Duration = Duration::from_millis(200);

/// It has closed its end, so it is about to exit.
const EXIT_WITHIN: Duration = Duration::from_millis(200);

/// Ends the successor and tells why it did not come up: its own words, its exit, or `else_why`.
pub(super) async fn of(child: &mut Child, else_why: &str) -> String {
    let exit = timeout(EXIT_WITHIN, child.wait()).await.ok().and_then(Result::ok);
    // Fails when it is gone already, which is what is wanted.
    let _ = child.start_kill();
    let _ = child.wait().await;
    let mut words = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // Something that it started may hold the pipe open.
        let _ = timeout(WORDS_WITHIN, stdout.take(WORDS_BYTES).read_to_end(&mut words)).await;
    }
    let how = exit.map(|status| format!("it ended at once ({})", shared::process::Exit::from(status)));
    sentence(&String::from_utf8_lossy(&words), &how.unwrap_or_else(|| else_why.to_owned()))
}

fn sentence(words: &str, how: &str) -> String {
    let first = text::one_line(words.lines().next().unwrap_or_default(), 300);
    match first.strip_prefix("error: ") {
        Some(why) => why.to_owned(),
        None if first.is_empty() => how.to_owned(),
        None => format!("{how}; it wrote {first:?}, which is nothing that scvd says"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_words_come_first_and_garbage_is_shown() {
        assert_eq!(sentence("error: cannot lock\nmore", "it ended"), "cannot lock");
        assert_eq!(sentence("", "it ended"), "it ended");
        assert!(!sentence("\u{1b}[1mhi\n", "it ended").contains('\u{1b}'));
        assert!(sentence("hi\n", "it ended").starts_with("it ended; it wrote \"hi\""));
    }
}
