use shared::process::Identity;
use shared::protocol::SessionId;

use super::*;

const IDLE: Duration = Duration::from_mins(1);

struct Home {
    dir: tempfile::TempDir,
    conversations: Conversations,
}

fn markers(dir: &Path) -> Markers {
    Markers { dir: dir.to_owned(), session: SessionId::new(), owner: Identity::current().unwrap() }
}

fn home(limit: usize) -> Home {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { conversations: limit, idle: IDLE };
    let conversations = Conversations::new(limits, markers(dir.path()), Snapshot::default());
    Home { dir, conversations }
}

impl Home {
    /// A conversation with one finished turn.
    fn conversation(&self, thread: &str) -> String {
        let mut turn = self.conversations.begin("codex", Path::new("/w")).unwrap();
        turn.confirm(thread);
        turn.handle().to_owned()
    }

    fn handles(&self) -> Vec<String> {
        let snapshot = self.conversations.watch().borrow().clone();
        snapshot.conversations.into_iter().map(|conversation| conversation.handle).collect()
    }

    fn marked(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn tokens(input: u64, output: u64) -> Usage {
    Usage { input_tokens: Some(input), output_tokens: Some(output), cached_tokens: None }
}

#[test]
fn a_conversation_goes_on_under_its_handle() {
    let home = home(8);
    assert_eq!(home.conversation("t1"), "codex-1");
    assert_eq!(home.conversation("t2"), "codex-2");
    let turn = home.conversations.resume("codex-1").unwrap();
    assert_eq!((turn.resumes(), turn.number(), turn.cwd()), (Some("t1"), 2, Path::new("/w")));
}

#[test]
fn one_turn_runs_at_a_time() {
    let home = home(8);
    home.conversation("t1");
    let turn = home.conversations.resume("codex-1").unwrap();
    let busy = home.conversations.resume("codex-1").err().unwrap();
    assert_eq!(busy, ConversationError::Busy("codex-1".into()));
    assert!(busy.to_string().starts_with("session busy"), "{busy}");
    drop(turn);
    assert!(home.conversations.resume("codex-1").is_ok());
}

#[test]
fn only_handles_of_this_session_are_known() {
    let home = home(8);
    home.conversation("0191-thread");
    for handle in ["0191-thread", "codex-2", "", "../codex-1"] {
        let error = home.conversations.resume(handle).err().unwrap();
        assert!(matches!(error, ConversationError::Unknown { .. }), "{handle}");
        assert!(error.to_string().contains("it has codex-1"), "{error}");
    }
}

#[test]
fn what_was_never_confirmed_is_forgotten() {
    let home = home(8);
    drop(home.conversations.begin("codex", Path::new("/w")).unwrap());
    assert_eq!((home.handles(), home.marked()), (vec![], vec![]));
    assert_eq!(home.conversation("t"), "codex-2", "no handle is used twice");
}

#[test]
fn ids_that_are_no_ids_are_not_stored() {
    let home = home(8);
    for thread in ["", "-rf", "../../x", "a b", "a\nb", &"x".repeat(129)] {
        let mut turn = home.conversations.begin("codex", Path::new("/w")).unwrap();
        turn.confirm(thread);
        assert!(!turn.is_confirmed(), "{thread:?}");
    }
    assert_eq!(home.marked(), Vec::<String>::new());
}

#[test]
fn a_running_turn_is_remembered_once_it_is_confirmed() {
    let home = home(8);
    let mut turn = home.conversations.begin("codex", Path::new("/w")).unwrap();
    let mut watch = home.conversations.watch();
    turn.confirm("t1");
    assert!(watch.has_changed().unwrap());
    let kept = watch.borrow_and_update().clone();
    assert_eq!(kept.conversations[0].thread, "t1");
    assert_eq!(home.marked(), ["t1.json"]);
}

#[test]
fn the_least_recently_used_idle_one_makes_room() {
    let home = home(2);
    home.conversation("t1");
    home.conversation("t2");
    let running = home.conversations.resume("codex-1").unwrap();
    home.conversation("t3");
    assert_eq!(home.handles(), ["codex-1", "codex-3"], "the running one stays");
    assert_eq!(home.marked(), ["t1.json", "t3.json"]);
    drop(running);
}

#[test]
fn a_first_turn_that_fails_costs_no_other_conversation() {
    let home = home(1);
    home.conversation("t1");
    drop(home.conversations.begin("codex", Path::new("/w")).unwrap());
    assert_eq!(home.handles(), ["codex-1"]);
}

#[test]
fn no_more_than_the_limit_run() {
    let home = home(1);
    let _running = home.conversations.begin("codex", Path::new("/w")).unwrap();
    assert_eq!(home.conversations.begin("codex", Path::new("/w")).err(), Some(ConversationError::AllBusy(1)));
}

#[test]
fn an_unused_conversation_expires() {
    let home = home(8);
    home.conversation("t1");
    let late = unix_ms() + 61_000;
    let running = home.conversations.resume("codex-1").unwrap();
    home.conversations.0.forget_expired(late);
    assert_eq!(home.handles(), ["codex-1"], "not while a turn runs");
    drop(running);
    home.conversations.0.forget_expired(late);
    assert_eq!((home.handles(), home.marked()), (vec![], vec![]));
}

#[test]
fn a_snapshot_brings_everything_back_in_another_process() {
    let home = home(8);
    home.conversation("t1");
    home.conversations.resume("codex-1").unwrap().spent(tokens(12, 7));
    let json = serde_json::to_string(&*home.conversations.watch().borrow()).unwrap();
    let snapshot: Snapshot = serde_json::from_str(&json).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { conversations: 8, idle: IDLE };
    let conversations = Conversations::new(limits, markers(dir.path()), snapshot);
    assert!(dir.path().join("t1.json").exists(), "its marker names the new process");
    let mut turn = conversations.resume("codex-1").unwrap();
    assert_eq!((turn.number(), turn.spent(tokens(24, 14))), (3, tokens(12, 7)));
    assert_eq!(conversations.begin("codex", Path::new("/w")).unwrap().handle(), "codex-2");
}

#[test]
fn usage_of_the_whole_conversation_is_told_turn_by_turn() {
    let home = home(8);
    let mut turn = home.conversations.begin("codex", Path::new("/w")).unwrap();
    turn.confirm("t1");
    assert_eq!(turn.spent(tokens(12, 7)), tokens(12, 7));
    drop(turn);
    let mut turn = home.conversations.resume("codex-1").unwrap();
    assert_eq!(turn.spent(tokens(30, 9)), tokens(18, 2));
    assert_eq!(turn.spent(tokens(5, 10)), tokens(5, 1), "a count that began anew is all new");
}

#[test]
fn a_lost_conversation_is_forgotten_with_its_marker() {
    let home = home(8);
    home.conversation("t1");
    home.conversations.resume("codex-1").unwrap().lost();
    assert_eq!((home.handles(), home.marked()), (vec![], vec![]));
}

#[test]
fn a_closed_session_leaves_no_marker_and_a_dropped_one_does() {
    let home = home(8);
    home.conversation("t1");
    let Home { dir, conversations } = home;
    conversations.clone().close();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
