//! The answer's text: streamed as it arrives, and whole in the end whatever was lost on the way.

use super::Act;

/// One response's text, as far as it was printed.
#[derive(Debug, Default)]
pub(in crate::commands::exec) struct Stream {
    printed: String,
    /// A delta is missing: printing goes on when the whole text is there.
    lost: bool,
    /// The next piece is all of the text so far: the connection is a new one.
    whole: bool,
    last_seq: Option<u64>,
}

impl Stream {
    /// Notes an event's number; whether events before it were lost.
    pub(in crate::commands::exec) fn sees(&mut self, seq: Option<u64>) -> bool {
        let Some(seq) = seq else { return false };
        let gap = self.last_seq.is_some_and(|last| seq > last + 1);
        self.last_seq = Some(seq);
        gap
    }

    /// The last number seen.
    pub(in crate::commands::exec) fn last_seq(&self) -> u64 {
        self.last_seq.unwrap_or(0)
    }

    /// What comes next comes over a new connection, after all that was seen.
    pub(in crate::commands::exec) fn attached_again(&mut self) {
        self.whole = true;
    }

    /// The next piece.
    pub(in crate::commands::exec) fn delta(&mut self, content: String, gap: bool) -> Vec<Act> {
        if std::mem::take(&mut self.whole) {
            let Some(rest) = content.strip_prefix(self.printed.as_str()).map(str::to_owned) else {
                self.lost = true;
                return Vec::new();
            };
            self.lost = false;
            self.printed = content;
            return if rest.is_empty() { Vec::new() } else { vec![Act::Answer(rest)] };
        }
        self.lost |= gap;
        if self.lost {
            return Vec::new();
        }
        self.printed.push_str(&content);
        vec![Act::Answer(content)]
    }

    /// The whole text, which is what counts.
    pub(in crate::commands::exec) fn completed(&mut self, content: &str) -> Vec<Act> {
        let printed = std::mem::take(&mut self.printed);
        self.lost = false;
        self.whole = false;
        let rest = match content.strip_prefix(printed.as_str()) {
            Some(rest) => vec![Act::Answer(rest.to_owned())],
            // What was streamed is not what was meant: said again, on a line of its own.
            None => vec![Act::EndLine, Act::Answer(content.to_owned())],
        };
        let mut acts: Vec<Act> = rest.into_iter().filter(|act| *act != Act::Answer(String::new())).collect();
        if !content.is_empty() || !printed.is_empty() {
            acts.push(Act::EndLine);
        }
        acts
    }
}
