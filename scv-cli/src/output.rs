//! Text for people and JSON for programs; answers on stdout, everything else on stderr.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::context::Context;
use crate::error::CliError;

/// Writes a line to stdout.
pub(crate) fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes a value to stdout as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    line(&serde_json::to_string_pretty(value)?)
}

/// Writes rows to stdout, each column as wide as its widest cell.
pub(crate) fn table(rows: &[Vec<String>]) -> io::Result<()> {
    for row in align(rows) {
        line(&row)?;
    }
    Ok(())
}

fn align(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    rows.iter()
        .map(|row| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect()
}

/// Tells on stderr what somebody should know although it worked.
pub(crate) fn warn(context: &Context, text: &str) {
    if !context.quiet {
        // As for `report`.
        let _ = writeln!(io::stderr(), "warning: {}", printable(text));
    }
}

/// Tells an error on stderr: what, causes, what to do.
pub(crate) fn report(error: &CliError) {
    if error.what.is_empty() {
        return;
    }
    let color = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // That stderr is closed is nothing that could be told anywhere.
    let _ = io::stderr().write_all(told(error, color).as_bytes());
}

fn told(error: &CliError, color: bool) -> String {
    let label = if color { "\x1b[1;31merror:\x1b[0m" } else { "error:" };
    let mut lines = vec![format!("{label} {}", printable(&error.what))];
    let mut cause = error.source.as_deref();
    while let Some(error) = cause {
        lines.push(format!("  cause: {}", printable(&error.to_string())));
        cause = error.source();
    }
    lines.extend(error.hint.iter().map(|hint| format!("  hint: {}", printable(hint))));
    lines.join("\n") + "\n"
}

/// `text` without what could move a cursor, change a terminal or reorder a line. Line ends and
/// tabs stay.
pub(crate) fn printable(text: &str) -> String {
    let is_hidden = |c: char| {
        // Bidirectional controls can make a command read as another one.
        matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{061c}')
    };
    text.chars()
        .filter(|c| !is_hidden(*c))
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c })
        .collect()
}

/// A duration for people: `0.8 s`, `42 s`, `3 min 20 s`, `2 h 5 min`, `3 d`.
pub(crate) fn duration(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{}.{} s", seconds, duration.subsec_millis() / 100),
        10..120 => format!("{seconds} s"),
        120..7200 if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        120..7200 => format!("{} min {} s", seconds / 60, seconds % 60),
        7200..172_800 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// What something uses, for people; none where nothing is known.
pub(crate) fn uses(memory_bytes: Option<u64>, cpu_ms: Option<u64>) -> Option<String> {
    let memory = memory_bytes.map(|bytes| format!("{} MiB", bytes.div_ceil(1 << 20)));
    let cpu = cpu_ms.map(|ms| format!("{} of processor time", duration(std::time::Duration::from_millis(ms))));
    let known: Vec<String> = memory.into_iter().chain(cpu).collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// Like [`duration`], in whole seconds: for what is shown while it grows.
pub(crate) fn whole_seconds(elapsed: std::time::Duration) -> String {
    match elapsed.as_secs() {
        seconds @ 0..10 => format!("{seconds} s"),
        _ => duration(elapsed),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_error_reads_what_cause_hint() {
        let error = CliError::failed("cannot start agent codex for session s-42")
            .because(io::Error::from_raw_os_error(13))
            .hint("run `scv agents check codex`");
        assert_eq!(
            told(&error, false),
            "error: cannot start agent codex for session s-42\n  cause: Permission denied (os error 13)\n  hint: run `scv agents check codex`\n"
        );
    }

    #[test]
    fn nothing_that_a_model_writes_can_control_the_terminal() {
        assert_eq!(printable("a\x1b]0;x\x07\r\nb\u{202e}c\td"), "a\u{fffd}]0;x\u{fffd}\u{fffd}\nbc\td");
    }

    #[test]
    fn durations_are_short() {
        let told = [800, 9_950, 42_000, 200_000, 600_000, 7_500_000, 300_000_000]
            .map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(told, ["0.8 s", "9.9 s", "42 s", "3 min 20 s", "10 min", "2 h 5 min", "3 d"]);
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".into(), "bb".into()], vec!["ccc".into(), "d".into()]];
        assert_eq!(align(&rows), ["a    bb", "ccc  d"]);
    }
}
