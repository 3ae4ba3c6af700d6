use shared::layout::{Layout, SessionDir};
use shared::protocol::SessionId;
use shared::protocol::server::{SessionBody, SessionEvent, TurnBody, TurnEvent};

use super::super::MAX_RECORD_BYTES;
use super::*;

fn session() -> (tempfile::TempDir, SessionDir) {
    let home = tempfile::tempdir().unwrap();
    let dir = Layout::open(home.path()).unwrap().session(SessionId::new());
    fs::private_dir(dir.path()).unwrap();
    (home, dir)
}

fn turn(seq: u64, text: &str) -> Record {
    let event = TurnEvent {
        body: TurnBody::AssistantCompleted { content: text.into() },
        request_id: "client:1:r".into(),
        session_id: SessionId::new(),
        turn_id: "t".into(),
        seq,
    };
    Record::Turn { at: 1, event }
}

fn cleared(seq: u64) -> Record {
    let event = SessionEvent { body: SessionBody::Cleared {}, request_id: None, session_id: SessionId::new(), seq };
    Record::Session { at: 1, event }
}

/// Everything that is in it, also before the snapshot.
fn load(dir: &SessionDir) -> (Journal, Vec<Record>) {
    let (journal, _) = Journal::open(dir, |_| {}).unwrap();
    let mut cursor = journal.start();
    let records = std::iter::from_fn(|| journal.read(&mut cursor).unwrap()).collect();
    (journal, records)
}

/// The state that a load gives.
fn loaded(dir: &SessionDir) -> State {
    let mut state = State::default();
    Journal::open(dir, |record| state.apply(&record)).unwrap();
    state
}

/// A journal of `count` events between other records, and what they amount to.
fn journal(dir: &SessionDir, count: u64) -> (Journal, State) {
    let (mut journal, _) = load(dir);
    let mut state = State::default();
    for seq in 1..=count {
        let event = if seq % 7 == 0 { cleared(seq) } else { turn(seq, &format!("text {seq}")) };
        let records = [Record::Ceiling { seq: 4096 }, event, Record::Paused { paused: seq % 2 == 0 }];
        for record in &records {
            state.apply(record);
        }
        journal.append(&records).unwrap();
    }
    (journal, state)
}

fn numbers(records: &[Record]) -> Vec<u64> {
    let number = |record: &Record| match record {
        Record::Turn { event, .. } => Some(event.seq),
        Record::Session { event, .. } => Some(event.seq),
        _ => None,
    };
    records.iter().filter_map(number).collect()
}

#[test]
fn the_newest_events_and_the_state_are_left_and_the_journal_goes_on() {
    let (_home, dir) = session();
    let (mut long, state) = journal(&dir, 50);
    long.compact(Kept { events: 20, bytes: 1 << 20 }, &state).unwrap();
    assert_eq!(long.len(), std::fs::metadata(dir.journal()).unwrap().len());
    long.append(&[turn(51, "more")]).unwrap();
    let mut read = 0;
    let (again, _) = Journal::open(&dir, |_| read += 1).unwrap();
    assert_eq!((read, again.to_load()), (2, long.to_load()), "the snapshot and what follows it");

    let (_, records) = load(&dir);
    assert_eq!(numbers(&records), (31..=51).collect::<Vec<_>>());
    let mut expected = state;
    expected.apply(&turn(51, "more"));
    assert_eq!((State::fold(&records), loaded(&dir)), (expected.clone(), expected));
}

#[test]
fn events_that_are_large_stay_only_as_far_as_their_bytes_are_few() {
    let (_home, dir) = session();
    let (mut long, state) = journal(&dir, 3);
    let large = "x".repeat(10_000);
    long.append(&(4..=40).map(|seq| turn(seq, &large)).collect::<Vec<_>>()).unwrap();
    let before = long.len();
    long.compact(Kept { events: 2000, bytes: before / 2 }, &state).unwrap();
    assert!(long.len() < before / 2 + 200, "{} of {before}", long.len());
    assert_eq!(numbers(&load(&dir).1), (23..=40).collect::<Vec<_>>());
    // One that is too large alone does not stay either.
    long.compact(Kept { events: 2000, bytes: 5000 }, &state).unwrap();
    assert_eq!(numbers(&load(&dir).1), Vec::<u64>::new());
}

#[test]
fn blobs_of_events_that_stay_are_kept_and_no_others() {
    let (_home, dir) = session();
    let (mut long, state) = journal(&dir, 1);
    let huge =
        |seq: u64| turn(seq, &char::from(b'a' + u8::try_from(seq).unwrap()).to_string().repeat(MAX_RECORD_BYTES));
    let not_an_event = Record::Conversations { snapshot: "c".repeat(MAX_RECORD_BYTES).into() };
    long.append(&[huge(2), not_an_event, huge(3), huge(4)]).unwrap();
    let blobs = || std::fs::read_dir(dir.blobs()).unwrap().count();
    assert_eq!(blobs(), 4);
    long.compact(Kept { events: 2, bytes: 16 << 20 }, &state).unwrap();
    assert_eq!(blobs(), 3, "two events and the snapshot");
    let (_, records) = load(&dir);
    assert_eq!(numbers(&records), [3, 4]);
    assert_eq!(loaded(&dir), state);
    // Their weight is that of the blobs.
    long.compact(Kept { events: 2, bytes: 3 << 19 }, &state).unwrap();
    assert_eq!(numbers(&load(&dir).1), [4]);
    for _ in 0..3 {
        long.compact(Kept { events: 0, bytes: 0 }, &state).unwrap();
        assert_eq!(blobs(), 1, "snapshots do not pile up");
    }
}

#[test]
fn a_compaction_that_fails_changes_nothing() {
    let (_home, dir) = session();
    let (mut long, state) = journal(&dir, 5);
    let before = std::fs::read(dir.journal()).unwrap();
    // No blob can be made where a file is in the way.
    std::fs::write(dir.blobs(), "").unwrap();
    long.compact(Kept { events: 2, bytes: 1000 }, &state).unwrap_err();
    assert_eq!(std::fs::read(dir.journal()).unwrap(), before);
    long.append(&[turn(6, "more")]).unwrap();
    assert_eq!(numbers(&load(&dir).1), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn the_borrowed_snapshot_is_a_record() {
    let state = State { seq: 7, ..State::default() };
    let borrowed = serde_json::to_string(&Borrowed::Snapshot { state: &state }).unwrap();
    let owned = serde_json::to_string(&Record::Snapshot { state: Box::new(state) }).unwrap();
    assert_eq!(borrowed, owned);
}
