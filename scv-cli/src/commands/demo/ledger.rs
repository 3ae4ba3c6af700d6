//! Every process that the demo was seen to start, and whether it is still there.

use std::collections::BTreeMap;

use shared::process::{self, Identity};

use super::cannot;
use crate::error::CliError;
use crate::output;

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    seen: BTreeMap<(i32, u64), Seen>,
}

#[derive(Debug)]
struct Seen {
    identity: Identity,
    what: String,
    below: i32,
}

impl Ledger {
    /// Nothing was seen yet.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Looks at everything below us.
    pub(super) fn look(&mut self) {
        let Ok(own) = i32::try_from(std::process::id()) else { return };
        for identity in process::tree(own) {
            if identity.pid != own {
                self.note(&identity);
            }
        }
    }

    /// Remembers one process.
    pub(super) fn note(&mut self, identity: &Identity) {
        let key = (identity.pid, identity.start);
        let (what, below) = (describe(identity.pid), parent(identity.pid));
        let seen =
            self.seen.entry(key).or_insert_with(|| Seen { identity: identity.clone(), what: String::new(), below });
        // A process that was seen between its start and its exec has another name by now.
        if !what.is_empty() {
            seen.what = what;
        }
    }

    /// How many processes that were seen below `dead` still run.
    pub(super) fn living_below_dead(&self, dead: &Identity) -> usize {
        self.seen.values().filter(|seen| seen.below == dead.pid && seen.identity.is_alive()).count()
    }

    /// Lists all of them; how many are still there.
    pub(super) fn report(&mut self) -> Result<usize, CliError> {
        self.look();
        let mut rows = vec![vec!["PID".to_owned(), "NOW".to_owned(), "WHAT".to_owned()]];
        let mut left = 0;
        for seen in self.seen.values() {
            let alive = seen.identity.is_alive();
            left += usize::from(alive);
            let now = if alive { "STILL HERE" } else { "gone" };
            rows.push(vec![seen.identity.pid.to_string(), now.to_owned(), seen.what.clone()]);
        }
        output::table(&rows).map_err(cannot("write the list"))?;
        Ok(left)
    }
}

/// The command line, as far as it fits a line.
fn describe(pid: i32) -> String {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<String> = command
        .split(|b| *b == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .map(|word| {
            word.rsplit_once('/').filter(|_| word.starts_with('/')).map_or(word.clone(), |(_, name)| name.to_owned())
        })
        .collect();
    shared::text::one_line(words.join(" ").trim(), 90)
}

fn parent(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    after_name.split(' ').nth(1).and_then(|parent| parent.parse().ok()).unwrap_or(0)
}
