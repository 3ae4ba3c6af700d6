//! What should be.

use std::collections::BTreeSet;
use std::time::Duration;

use shared::layout::Layout;
use shared::protocol::SessionId;

use crate::settings::Settings;

/// More marks than this are not read in one look; the rest follows when these are gone.
const MAX_MARKS: usize = 4096;

/// What should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Sessions that have work: they run even if no client is there.
    pub(crate) sessions: BTreeSet<SessionId>,
    /// Workers without a session, ready for the next one.
    pub(crate) spares: usize,
    /// Sessions that may be live at once.
    pub(crate) max_sessions: usize,
    /// With nothing live or wanted for so long, the supervisor leaves.
    pub(crate) idle_exit: Option<Duration>,
}

impl Wanted {
    /// Reads the marks in `state/wanted`, and `state/kept`.
    pub(crate) fn read(layout: &Layout, settings: &Settings, on_demand: bool) -> Self {
        let marks = std::fs::read_dir(layout.wanted()).into_iter().flatten().flatten().take(MAX_MARKS);
        Self {
            sessions: marks.filter_map(|mark| mark.file_name().to_str()?.parse().ok()).collect(),
            spares: settings.spare_workers,
            max_sessions: settings.max_sessions,
            idle_exit: settings.idle_exit.filter(|_| on_demand && !layout.kept().exists()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_started_to_stay_never_leaves_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        layout.create().unwrap();
        let settings = Settings::default();
        assert_eq!(Wanted::read(&layout, &settings, true).idle_exit, settings.idle_exit);
        assert_eq!(Wanted::read(&layout, &settings, false).idle_exit, None);
        std::fs::write(layout.kept(), b"").unwrap();
        assert_eq!(Wanted::read(&layout, &settings, true).idle_exit, None);
    }
}
