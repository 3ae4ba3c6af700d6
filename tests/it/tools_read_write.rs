//! `read` and `write`, from the model's call to the file and back.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use scv_tests::fakes::model::Reply;
use scv_tests::talk::of_type;
use scv_tests::{Talk, wait};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

fn sha256(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// What a successful call gave, as JSON.
#[track_caller]
fn answer(result: &Value) -> Value {
    assert_eq!(result["success"], true, "{result}");
    serde_json::from_str(result["output"].as_str().unwrap()).unwrap()
}

/// Why a call failed: its kind and its text, which is also what the model gets.
#[track_caller]
fn refusal(talk: &Talk, result: &Value) -> (String, String) {
    assert_eq!(result["success"], false, "{result}");
    let (kind, text) = (result["error"].as_str().unwrap(), result["output"].as_str().unwrap());
    assert_eq!(talk.last_request().last_output(), Some(text));
    (kind.to_owned(), text.to_owned())
}

/// `call` is refused with `kind` and `words` before anybody is asked.
#[track_caller]
fn refused(talk: &mut Talk, name: &str, arguments: &Value, kind: &str, words: &str) {
    let (asked, result) = talk.call_asked(name, arguments);
    let (found, text) = refusal(talk, &result);
    assert!(found == kind && text.contains(words), "{arguments}: {found}: {text}");
    assert_eq!(asked, None, "{arguments}: nobody is asked about what fails anyway");
}

fn names(talk: &Talk) -> Vec<String> {
    let entries = fs::read_dir(talk.env.work()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn read_gives_content_length_and_truncation_and_asks_nobody() {
    let mut talk = Talk::start();
    talk.env.file("src/main.rs", "fn main() {}\n");
    let (asked, result) = talk.call_asked("read", &json!({"path": "src/main.rs"}));
    assert_eq!(asked, None);
    let expected = json!({"content": "fn main() {}\n", "offset": 0, "sha256": sha256("fn main() {}\n"),
        "total_bytes": 13, "truncated": false});
    assert_eq!(answer(&result), expected);
    assert_eq!((&result["truncated"], &result["error"]), (&json!(false), &Value::Null));
    let (_, result) = talk.call_asked("read", &json!({"path": "src/main.rs", "offset": 3, "limit": 4}));
    let expected = json!({"content": "main", "next_offset": 7, "offset": 3, "total_bytes": 13, "truncated": true});
    assert_eq!((answer(&result), &result["truncated"]), (expected, &json!(true)));
}

#[test]
fn the_fields_of_a_result_are_sorted() {
    let mut talk = Talk::start();
    talk.env.file("a", "text of a");
    let calls = [
        ("read", json!({"path": "a"})),
        ("read", json!({"path": "a", "limit": 2})),
        ("write", json!({"path": "b", "mode": "create", "content": "b"})),
    ];
    for (name, arguments) in calls {
        let text = talk.call(name, &arguments)["output"].as_str().unwrap().to_owned();
        // A map of this crate sorts its keys: the text is what it would write.
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(text, value.to_string());
    }
}

#[test]
fn a_long_file_of_wide_characters_is_read_to_its_end_by_its_own_directions() {
    let mut talk = Talk::configured("[tools]\nmax_read_bytes = 4096\noutput_limit_bytes = 1024");
    let content = "漢字🎈é".repeat(400);
    talk.env.file("wide.txt", &content);
    let (mut read, mut arguments) = (String::new(), json!({"path": "wide.txt"}));
    loop {
        let part = answer(&talk.call("read", &arguments));
        assert_eq!(part["total_bytes"], content.len());
        let text = part["content"].as_str().unwrap();
        assert!((1021..=1024).contains(&text.len()) || part["truncated"] == false, "{}", text.len());
        read.push_str(text);
        match part.get("next_offset") {
            Some(next) => arguments["offset"] = next.clone(),
            None => break,
        }
    }
    assert_eq!(read, content);
    refused(&mut talk, "read", &json!({"path": "wide.txt", "limit": 4097}), "invalid_arguments", "1 to 4096 bytes");
    let inside = json!({"path": "wide.txt", "offset": 1});
    let (_, result) = talk.call_asked("read", &inside);
    assert!(refusal(&talk, &result).1.contains("offset 1 is inside a character; start at 0 or 3"));
}

#[test]
fn what_is_no_text_names_its_first_wrong_byte() {
    let mut talk = Talk::start();
    talk.env.file("binary", b"ELF\x00\xff\xfe");
    let result = talk.call("read", &json!({"path": "binary"}));
    assert!(refusal(&talk, &result).1.contains("not UTF-8 text at byte 4"));
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let mut talk = Talk::start();
    let work = talk.env.work();
    nix::unistd::mkfifo(&work.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _listener = UnixListener::bind(work.join("socket")).unwrap();
    fs::create_dir(work.join("directory")).unwrap();
    symlink("fifo", work.join("link-to-fifo")).unwrap();
    let start = Instant::now();
    for path in ["fifo", "socket", "directory", "link-to-fifo", "missing", "fifo/below"] {
        let result = talk.call("read", &json!({"path": path}));
        let (kind, text) = refusal(&talk, &result);
        assert!(kind == "failed" && text.contains(path), "{path}: {kind}: {text}");
        let result = talk.call("write", &json!({"path": path, "mode": "replace", "content": "x"}));
        assert_eq!(refusal(&talk, &result).0, "failed", "{path}");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn no_path_leads_out_of_the_workspace() {
    let mut talk = Talk::start();
    let (root, work) = (talk.env.root().to_owned(), talk.env.work());
    fs::write(root.join("outside.txt"), "secret of the outside").unwrap();
    fs::create_dir(root.join("outside")).unwrap();
    symlink(root.join("outside.txt"), work.join("file-link")).unwrap();
    symlink("../outside.txt", work.join("relative-link")).unwrap();
    symlink(root.join("outside"), work.join("dir-link")).unwrap();
    symlink("/proc/self/root", work.join("proc-link")).unwrap();
    symlink("loop", work.join("loop")).unwrap();
    let outside = root.join("outside.txt").display().to_string();
    let through_proc = format!("proc-link{outside}");
    let paths = [
        "../outside.txt",
        "a/../../outside.txt",
        &outside,
        "file-link",
        "relative-link",
        "dir-link/new",
        "dir-link/../../outside.txt",
        &through_proc,
        "loop",
        "",
        ".",
        "..",
        "/",
        "nul\0byte",
    ];
    for path in paths {
        let calls = [
            ("read", json!({"path": path})),
            ("write", json!({"path": path, "mode": "create", "content": "gotcha"})),
            ("write", json!({"path": path, "mode": "replace", "content": "gotcha"})),
        ];
        for (name, arguments) in calls {
            let result = talk.call(name, &arguments);
            let (_, text) = refusal(&talk, &result);
            assert!(!text.contains("secret of"), "{path:?}: {text}");
        }
    }
    assert_eq!(fs::read_to_string(root.join("outside.txt")).unwrap(), "secret of the outside");
    assert_eq!(fs::read_dir(root.join("outside")).unwrap().count(), 0);
}

#[test]
fn a_path_swapped_for_a_link_while_somebody_decides_leads_nowhere() {
    let mut talk = Talk::start();
    let (root, work) = (talk.env.root().to_owned(), talk.env.work());
    fs::create_dir_all(root.join("outside")).unwrap();
    fs::create_dir(work.join("dir")).unwrap();
    talk.model.push(Reply::new().call("write", &json!({"path": "dir/new", "mode": "create", "content": "x"})));
    talk.model.push(Reply::text("done"));
    talk.wire.prompt(&talk.session.clone(), "write");
    let asked = talk.wire.until_type("approval.requested");
    fs::rename(work.join("dir"), work.join("moved")).unwrap();
    symlink(root.join("outside"), work.join("dir")).unwrap();
    talk.wire.resolve(&asked, true);
    let result = of_type(&talk.wire.turn(), "tool.completed").remove(0);
    refusal(&talk, &result);
    assert_eq!(fs::read_dir(root.join("outside")).unwrap().count(), 0);
}

#[test]
fn a_secret_like_name_needs_approval_to_be_read() {
    let mut talk = Talk::start();
    for path in [".env", "deploy/.env.local", "server.key", "my_credentials.json", ".ssh/id_ed25519"] {
        talk.env.file(path, "TOKEN=1");
        let (asked, result) = talk.call_asked("read", &json!({"path": path}));
        let asked = asked.unwrap_or_else(|| panic!("{path} was read unasked"));
        assert_eq!((&asked["name"], &asked["risk"]), (&json!("read"), &json!("filesystem")));
        assert!(asked["summary"].as_str().unwrap().contains(path) && !asked["summary"].to_string().contains("TOKEN"));
        assert_eq!(answer(&result)["content"], "TOKEN=1");
    }
    // An innocent name that leads to one is the same.
    symlink(".env", talk.env.work().join("notes.txt")).unwrap();
    let (asked, _) = talk.call_asked("read", &json!({"path": "notes.txt"}));
    assert!(asked.is_some(), "a link to a secret-like file was read unasked");
}

#[test]
fn a_denied_call_never_starts_and_the_model_hears_of_it() {
    let mut talk = Talk::start();
    talk.env.file(".env", "TOKEN=1");
    let calls = [
        ("read", json!({"path": ".env"})),
        ("write", json!({"path": "new", "mode": "create", "content": "x"})),
        ("write", json!({"path": ".env", "mode": "replace", "content": "x"})),
    ];
    for (name, arguments) in calls {
        talk.model.push(Reply::new().call(name, &arguments));
        talk.model.push(Reply::text("all right"));
        let events = talk.turn_answering("go", false);
        assert_eq!(of_type(&events, "tool.started"), Vec::<Value>::new());
        let result = of_type(&events, "tool.completed").remove(0);
        let (kind, text) = refusal(&talk, &result);
        assert!(kind == "denied" && !text.contains("TOKEN"), "{kind}: {text}");
        assert_eq!(events.last().unwrap()["type"], "turn.completed", "the model goes on");
    }
    assert_eq!(names(&talk), [".env"]);
    assert_eq!(fs::read_to_string(talk.env.work().join(".env")).unwrap(), "TOKEN=1");
}

#[test]
fn every_write_has_filesystem_risk_and_shows_what_it_would_do() {
    let mut talk = Talk::start();
    let (asked, result) = talk.call_asked("write", &json!({"path": "a/b/c.txt", "mode": "create", "content": "one\n"}));
    let asked = asked.expect("a write is asked for");
    assert_eq!((&asked["risk"], &asked["cwd"]), (&json!("filesystem"), &json!(talk.env.work())));
    assert!(asked["summary"].as_str().unwrap().starts_with("create a/b/c.txt: 4 bytes"), "{asked}");
    assert_eq!(answer(&result), json!({"bytes": 4, "path": "a/b/c.txt", "sha256": sha256("one\n")}));
    let path = talk.env.work().join("a/b/c.txt");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    let (asked, _) = talk.call_asked("write", &json!({"path": "a/b/c.txt", "mode": "replace", "content": "two\n"}));
    let summary = asked.unwrap()["summary"].as_str().unwrap().to_owned();
    assert!(summary.contains("one") && summary.contains("two"), "{summary}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o751, "the mode is kept");
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn create_needs_a_free_path_and_replace_a_file() {
    let mut talk = Talk::start();
    talk.env.file("there", "old");
    let call = |path: &str, mode: &str| json!({"path": path, "mode": mode, "content": "new"});
    refused(&mut talk, "write", &call("there", "create"), "failed", "there exists; mode replace");
    refused(&mut talk, "write", &call("missing", "replace"), "failed", "missing");
    refused(&mut talk, "write", &call("there", "append"), "invalid_arguments", "append");
    refused(&mut talk, "write", &json!({"path": "there", "content": "new"}), "invalid_arguments", "mode");
    assert_eq!(
        (names(&talk), fs::read_to_string(talk.env.work().join("there")).unwrap()),
        (vec!["there".into()], "old".into())
    );
}

#[test]
fn a_file_that_changed_is_not_replaced() {
    let mut talk = Talk::start();
    let path = talk.env.file("a", "old");
    let replace = |hash: &str| json!({"path": "a", "mode": "replace", "content": "new", "expected_sha256": hash});
    // Another file than the model has seen.
    let result = talk.call("write", &replace(&sha256("other")));
    assert!(refusal(&talk, &result).1.contains("has changed"));
    refused(&mut talk, "write", &replace("not a hash"), "invalid_arguments", "64 hex digits");
    // It changes while somebody decides.
    talk.model.push(Reply::new().call("write", &replace(&sha256("old"))));
    talk.model.push(Reply::text("done"));
    talk.wire.prompt(&talk.session.clone(), "write");
    let asked = talk.wire.until_type("approval.requested");
    fs::write(&path, "meanwhile").unwrap();
    talk.wire.resolve(&asked, true);
    let result = of_type(&talk.wire.turn(), "tool.completed").remove(0);
    assert!(refusal(&talk, &result).1.contains(&sha256("meanwhile")), "{result}");
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(&talk)), ("meanwhile", vec!["a".to_owned()]));
    // And the right one is.
    let written = answer(&talk.call("write", &replace(&sha256("meanwhile"))));
    assert_eq!(written["sha256"], sha256("new"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
}

#[test]
fn a_write_over_the_limit_is_refused_before_approval() {
    let mut talk = Talk::configured("[tools]\nmax_write_bytes = 1024");
    let call = |bytes: usize| json!({"path": "a", "mode": "create", "content": "x".repeat(bytes)});
    refused(&mut talk, "write", &call(1025), "limit", "at most 1024");
    answer(&talk.call("write", &call(1024)));
    assert_eq!(wait(talk.model.requests()).len(), 4);
}
