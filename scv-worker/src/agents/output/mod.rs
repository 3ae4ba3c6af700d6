//! What an agent program prints, read as it arrives: its reply, its usage, its error, and lines
//! for people.
//!
//! Only that is kept. An event log of any length costs the reply and 2 KiB, and nothing that a
//! program prints can break the reader.

pub(crate) mod codex;
pub(crate) mod display;
pub(crate) mod lines;
mod tail;

use shared::protocol::server::Usage;

use lines::Lines;
use tail::Tail;

/// How much of stderr a result carries (tools.md, "Results").
pub(crate) const STDERR_TAIL_BYTES: usize = 2 << 10;
/// How much of an error a result carries; providers put whole pages into theirs.
pub(crate) const ERROR_BYTES: usize = 2 << 10;
/// How much of a reply is held; `tools.output_limit_bytes` cuts it further.
const REPLY_BYTES: usize = 1 << 20;

/// The events of one agent program, one line at a time.
pub(crate) trait Format {
    /// Reads `line`, notes what it says in `said`, and tells whether it was an event at all.
    /// Unknown events and fields are ignored.
    fn line(&mut self, line: &str, said: &mut Said) -> bool;
}

/// How far a turn is, as the program tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It works, or nothing tells.
    #[default]
    Working,
    /// It has said something and nothing that it started is still running.
    Answered,
    /// Its terminal event came: there is nothing more to wait for.
    Ended,
}

/// What an agent has said in one turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Said {
    /// The program's own id of the conversation, once it has confirmed it.
    pub thread: Option<String>,
    /// Its answer so far.
    pub reply: Option<String>,
    /// Whether `reply` was longer than what is kept.
    pub reply_cut: bool,
    /// Tokens, as the program counts them.
    pub usage: Option<Usage>,
    /// What went wrong, in the program's words. Only [`Said::failed`] makes it a failure: programs
    /// also report what they recover from.
    pub error: Option<String>,
    /// The program reported that the turn failed.
    pub failed: bool,
    /// The model refused the request.
    pub refused: bool,
    /// How far it is.
    pub phase: Phase,
    /// Lines for people that nobody has taken yet.
    pub progress: Vec<String>,
}

impl Said {
    /// The answer is `text` now.
    pub(crate) fn answer(&mut self, text: &str) {
        let end = shared::text::floor(text, REPLY_BYTES);
        self.reply_cut = end < text.len();
        self.reply = Some(text[..end].to_owned());
    }

    /// Something went wrong; the last one told wins.
    pub(crate) fn trouble(&mut self, message: &str) {
        self.error = Some(shared::text::cut(&display::mask(message), ERROR_BYTES));
    }
}

/// Listens to one program: its stdout as events or text, the end of its stderr.
pub(crate) struct Heard {
    /// What it said.
    pub said: Said,
    format: Option<Box<dyn Format>>,
    events: bool,
    lines: Lines,
    text: String,
    text_cut: bool,
    stderr: Tail,
}

impl Heard {
    /// Without a `format`, stdout is the reply.
    pub(crate) fn new(format: Option<Box<dyn Format>>) -> Self {
        Self {
            said: Said::default(),
            format,
            events: false,
            lines: Lines::default(),
            text: String::new(),
            text_cut: false,
            stderr: Tail::new(STDERR_TAIL_BYTES),
        }
    }

    /// Takes the next bytes of stdout.
    pub(crate) fn stdout(&mut self, bytes: &[u8]) {
        let Self { said, format, events, lines, text, text_cut, .. } = self;
        lines.push(bytes, |line| hear(line, said, format, events, text, text_cut));
    }

    /// Takes the next bytes of stderr.
    pub(crate) fn stderr(&mut self, bytes: &[u8]) {
        self.stderr.push(bytes);
    }

    /// There is no more: an unfinished line counts, and a stream without any event is text.
    pub(crate) fn finish(&mut self) {
        let Self { said, format, events, lines, text, text_cut, .. } = self;
        lines.finish(|line| hear(line, said, format, events, text, text_cut));
        if !self.events && self.said.reply.is_none() && !self.text.trim().is_empty() {
            self.said.answer(self.text.trim());
            self.said.reply_cut |= self.text_cut;
        }
    }

    /// The end of stderr, and whether it had more.
    pub(crate) fn stderr_tail(&self) -> (String, bool) {
        self.stderr.text()
    }

    /// Whether stdout held an event.
    pub(crate) fn has_events(&self) -> bool {
        self.events
    }
}

fn hear(
    line: &[u8],
    said: &mut Said,
    format: &mut Option<Box<dyn Format>>,
    events: &mut bool,
    text: &mut String,
    text_cut: &mut bool,
) {
    let line = String::from_utf8_lossy(line);
    if format.as_mut().is_some_and(|format| format.line(&line, said)) {
        *events = true;
        // What came before the first event was no answer.
        text.clear();
    }
    if *events {
        return;
    }
    let room = REPLY_BYTES.saturating_sub(text.len() + 1);
    let end = shared::text::floor(&line, room);
    *text_cut |= end < line.len();
    if room > 0 {
        text.push_str(&line[..end]);
        text.push('\n');
    }
}

#[cfg(test)]
mod tests;
