//! The ids of all sessions on the disk, for lists and counts.
//!
//! Names alone: no session's directory is looked into. They are read again only when something came
//! or went, which the time of `state/sessions` tells, so that a count costs one `stat`.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use shared::layout::Layout;
use shared::protocol::SessionId;

/// A directory that was changed twice within one tick of its clock has the same time twice: one
/// that changed so recently is read again. Local disks count in milliseconds, some others in
/// seconds.
const SETTLED: Duration = Duration::from_secs(2);

/// The ids, as far as they are known.
#[derive(Debug)]
pub(crate) struct Index {
    dir: PathBuf,
    known: RefCell<Option<Known>>,
}

#[derive(Debug)]
struct Known {
    ids: Rc<[SessionId]>,
    changed: SystemTime,
}

impl Index {
    /// Nothing is read before somebody asks.
    pub(crate) fn of(layout: &Layout) -> Self {
        Self { dir: layout.sessions(), known: RefCell::default() }
    }

    /// The ids in their order, which for those that we made is that of their age.
    pub(crate) fn ids(&self) -> Rc<[SessionId]> {
        let now = SystemTime::now();
        let changed = std::fs::metadata(&self.dir).and_then(|dir| dir.modified()).ok();
        if let Some(known) = &*self.known.borrow()
            && Some(known.changed) == changed
        {
            return known.ids.clone();
        }
        let ids = self.read();
        let settled = changed.filter(|changed| now.duration_since(*changed).is_ok_and(|age| age > SETTLED));
        self.known.replace(settled.map(|changed| Known { ids: ids.clone(), changed }));
        ids
    }

    fn read(&self) -> Rc<[SessionId]> {
        let names = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut ids: Vec<SessionId> = names.filter_map(|dir| dir.file_name().to_str()?.parse().ok()).collect();
        ids.sort_unstable();
        ids.into()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::FileTimes;

    use super::*;

    fn home() -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        layout.create().unwrap();
        (dir, layout)
    }

    fn age(layout: &Layout, by: Duration) {
        let dir = std::fs::File::open(layout.sessions()).unwrap();
        dir.set_times(FileTimes::new().set_modified(SystemTime::now() - by)).unwrap();
    }

    #[test]
    fn what_came_or_went_is_known_at_once() {
        let (_dir, layout) = home();
        let index = Index::of(&layout);
        let mut there = Vec::new();
        for _ in 0..50 {
            let id = SessionId::new();
            std::fs::create_dir(layout.session(id).path()).unwrap();
            there.push(id);
            assert_eq!(index.ids()[..], there);
        }
        std::fs::remove_dir(layout.session(there.remove(7)).path()).unwrap();
        assert_eq!(index.ids()[..], there);
    }

    #[test]
    fn a_directory_that_did_not_change_is_not_read_again() {
        let (_dir, layout) = home();
        let index = Index::of(&layout);
        std::fs::create_dir(layout.session(SessionId::new()).path()).unwrap();
        age(&layout, Duration::from_secs(10));
        let once = index.ids();
        assert!(Rc::ptr_eq(&once, &index.ids()));
        age(&layout, Duration::from_secs(5));
        assert!(!Rc::ptr_eq(&once, &index.ids()), "its time is another");
    }

    #[test]
    fn one_that_changed_just_now_is_not_trusted() {
        let (_dir, layout) = home();
        let index = Index::of(&layout);
        std::fs::create_dir(layout.session(SessionId::new()).path()).unwrap();
        assert!(!Rc::ptr_eq(&index.ids(), &index.ids()));
        // Nor one that will have changed: the clock was set back.
        let dir = std::fs::File::open(layout.sessions()).unwrap();
        dir.set_times(FileTimes::new().set_modified(SystemTime::now() + Duration::from_mins(1))).unwrap();
        assert!(!Rc::ptr_eq(&index.ids(), &index.ids()));
    }
}
