use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use shared::fs;
use shared::layout::Layout;
use shared::protocol::SessionId;

use super::*;
use crate::provider::Item;
use crate::session::state::State;

fn session() -> (tempfile::TempDir, SessionDir) {
    let home = tempfile::tempdir().unwrap();
    let dir = Layout::open(home.path()).unwrap().session(SessionId::new());
    fs::private_dir(dir.path()).unwrap();
    (home, dir)
}

fn open(dir: &SessionDir) -> (Journal, Vec<Record>, Loaded) {
    let mut records = Vec::new();
    let (journal, loaded) = Journal::open(dir, |record| records.push(record)).unwrap();
    (journal, records, loaded)
}

fn paused(paused: bool) -> Record {
    Record::Paused { paused }
}

fn texts(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| serde_json::to_string(record).unwrap()).collect()
}

#[test]
fn a_journal_cut_at_any_byte_loads_its_whole_lines_and_takes_more() {
    let (_home, dir) = session();
    let (mut journal, ..) = open(&dir);
    journal.append(&[paused(true), paused(false)]).unwrap();
    journal.append(&[paused(true)]).unwrap();
    drop(journal);
    let whole = std::fs::read(dir.journal()).unwrap();
    for cut in 0..=whole.len() {
        std::fs::write(dir.journal(), &whole[..cut]).unwrap();
        let (mut journal, records, loaded) = open(&dir);
        let lines = String::from_utf8_lossy(&whole[..cut]).matches('\n').count();
        assert_eq!(records.len(), lines, "cut at {cut}");
        assert_eq!(loaded.unreadable_lines, 0);
        journal.append(&[paused(false)]).unwrap();
        let (_, more, again) = open(&dir);
        assert_eq!(more.len(), lines + 1, "nothing is glued to a fragment, cut at {cut}");
        assert_eq!(again.torn_bytes, 0);
    }
}

#[test]
fn what_a_failed_append_left_is_cut_before_the_next_record() {
    let (_home, dir) = session();
    let (mut journal, ..) = open(&dir);
    journal.append(&[paused(true)]).unwrap();
    // As a full disk leaves it: a part of a line behind the last whole record.
    journal.file.write_at(b"{\"record\":\"pau", journal.len).unwrap();
    journal.dirty = true;
    journal.append(&[paused(false)]).unwrap();
    let (_, records, _) = open(&dir);
    assert_eq!(texts(&records), texts(&[paused(true), paused(false)]));
}

#[test]
fn a_record_over_the_line_limit_lies_in_a_blob_and_comes_back() {
    let (_home, dir) = session();
    let (mut journal, ..) = open(&dir);
    let large = Record::Response {
        items: vec![Item::Assistant { text: "x".repeat(MAX_RECORD_BYTES) }],
        usage: shared::protocol::server::Usage::default(),
    };
    journal.append(&[large.clone(), paused(true)]).unwrap();
    assert!(journal.len() < 1000, "the line itself is short");
    let (_, records, _) = open(&dir);
    assert_eq!(texts(&records), texts(&[large, paused(true)]));
}

#[test]
fn a_line_that_nobody_can_have_written_takes_bounded_memory_and_hides_no_other() {
    let (_home, dir) = session();
    let (mut journal, ..) = open(&dir);
    journal.append(&[paused(true)]).unwrap();
    let mut file = OpenOptions::new().append(true).open(dir.journal()).unwrap();
    file.write_all(&vec![b'x'; 5 << 20]).unwrap();
    file.write_all(b"\n{\"record\":\"paused\",\"paused\":false}\n").unwrap();
    let (journal, records, loaded) = open(&dir);
    assert_eq!(texts(&records), texts(&[paused(true), paused(false)]));
    assert_eq!((loaded.unreadable_lines, loaded.torn_bytes), (1, 0));
    let mut cursor = journal.start();
    let read = std::iter::from_fn(|| journal.read(&mut cursor).unwrap());
    assert_eq!(texts(&read.collect::<Vec<_>>()), texts(&[paused(true), paused(false)]));

    let mut line = Line::default();
    (0..800).for_each(|_| _ = line.push(&[b'x'; 8 << 10]));
    assert_eq!((line.start.len(), line.len), (MAX_RECORD_BYTES + 1, 800 * (8 << 10)));
}

#[test]
fn a_line_of_a_newer_release_is_counted_and_kept() {
    let (_home, dir) = session();
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.journal())
        .unwrap()
        .write_all(b"{\"record\":\"from_the_future\"}\n")
        .unwrap();
    let (mut journal, records, loaded) = open(&dir);
    assert_eq!((records.len(), loaded.unreadable_lines), (0, 1));
    journal.append(&[paused(true)]).unwrap();
    assert!(std::fs::read_to_string(dir.journal()).unwrap().starts_with("{\"record\":\"from_the_future\"}\n"));
}

#[test]
fn a_cursor_reads_what_comes_later_and_survives_a_replacement() {
    let (_home, dir) = session();
    let (mut journal, ..) = open(&dir);
    let mut cursor = journal.start();
    assert!(journal.read(&mut cursor).unwrap().is_none());
    journal.append(&[paused(true)]).unwrap();
    assert!(journal.read(&mut cursor).unwrap().is_some());
    assert!(journal.read(&mut cursor).unwrap().is_none());
    journal.compact(Kept { events: 10, bytes: 1000 }, &State::default()).unwrap();
    let record = journal.read(&mut cursor).unwrap().unwrap();
    assert!(matches!(record, Record::Snapshot { .. }), "{record:?}");
    journal.append(&[paused(true)]).unwrap();
    assert_eq!(open(&dir).1.len(), 2);
}

#[test]
fn a_record_that_was_taken_back_does_not_come_back() {
    let (_home, dir) = session();
    let (mut journal, ..) = open(&dir);
    journal.append(&[paused(true)]).unwrap();
    let before = journal.len();
    journal.append(&[paused(false)]).unwrap();
    journal.cut(before);
    assert_eq!(open(&dir).1.len(), 1);
}
