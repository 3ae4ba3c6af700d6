//! stdout and stderr of `exec`: answer text or NDJSON on one, lines and a status on the other.

use std::io::{self, IsTerminal as _, Write as _};

use shared::text;

use crate::output::printable;

/// Back to the start of the line, and erase it.
const CLEAR: &str = "\r\x1b[2K";

/// A status line is never wrapped; narrower terminals are rare.
const STATUS_BYTES: usize = 76;

/// What stdout gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stdout {
    /// Every event, one a line.
    Events,
    /// The answer, byte for byte.
    Answer,
    /// The answer without what could control the terminal.
    Terminal,
}

/// What stderr gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stderr {
    /// Only what has to be told.
    Quiet,
    /// Lines.
    Lines,
    /// Lines, and a status line that changes.
    Terminal,
}

/// Where things are written.
#[derive(Debug)]
pub(super) struct Screen {
    stdout: Stdout,
    stderr: Stderr,
    /// The answer's last line has not ended.
    mid_line: bool,
    status: Option<String>,
}

impl Screen {
    /// The streams of this process.
    pub(super) fn new(json: bool, quiet: bool) -> Self {
        let stdout = match (json, io::stdout().is_terminal()) {
            (true, _) => Stdout::Events,
            (false, false) => Stdout::Answer,
            (false, true) => Stdout::Terminal,
        };
        let stderr = match (quiet || json, io::stderr().is_terminal()) {
            (true, _) => Stderr::Quiet,
            (false, false) => Stderr::Lines,
            (false, true) => Stderr::Terminal,
        };
        Self { stdout, stderr, mid_line: false, status: None }
    }

    /// Whether there is a status line that has to be kept up to date.
    pub(super) fn is_live(&self) -> bool {
        self.stderr == Stderr::Terminal
    }

    /// An event as it came.
    pub(super) fn event(&mut self, line: &[u8]) -> io::Result<()> {
        if self.stdout != Stdout::Events {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(line)?;
        out.write_all(b"\n")?;
        out.flush()
    }

    /// Text of the answer.
    pub(super) fn answer(&mut self, text: &str) -> io::Result<()> {
        if self.stdout == Stdout::Events || text.is_empty() {
            return Ok(());
        }
        self.status(None);
        self.mid_line = !text.ends_with('\n');
        if self.stdout == Stdout::Terminal { write(&printable(text)) } else { write(text) }
    }

    /// Ends the answer's line, if one is open.
    pub(super) fn end_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.mid_line) { write("\n") } else { Ok(()) }
    }

    /// A line about what happens.
    pub(super) fn say(&mut self, text: &str) {
        if self.stderr != Stderr::Quiet {
            self.tell(text);
        }
    }

    /// A line that has to be told.
    pub(super) fn tell(&mut self, text: &str) {
        self.status(None);
        // Both streams may be one terminal; the answer's open line stays readable.
        let line_end = if self.breaks_a_line() { "\n" } else { "" };
        self.mid_line &= line_end.is_empty();
        let _ = io::stderr().write_all(format!("{line_end}{}\n", printable(text)).as_bytes());
    }

    /// Replaces the status line. It gives way to an open line of the answer.
    pub(super) fn status(&mut self, status: Option<String>) {
        let status = status.filter(|_| self.is_live() && !self.breaks_a_line());
        if status == self.status {
            return;
        }
        let shown = status.as_deref().map(|status| text::one_line(&printable(status), STATUS_BYTES));
        let _ = io::stderr().write_all(format!("{CLEAR}{}", shown.unwrap_or_default()).as_bytes());
        self.status = status;
    }

    /// Whether a line on the terminal would be glued to an open one of the answer.
    fn breaks_a_line(&self) -> bool {
        self.mid_line && self.stdout == Stdout::Terminal
    }

    /// Leaves whole lines behind.
    pub(super) fn close(&mut self) -> io::Result<()> {
        self.status(None);
        self.end_line()
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
