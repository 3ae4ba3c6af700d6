use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use serde_json::json;

use super::super::{CallContext, Progress};
use super::*;

struct Case {
    dir: tempfile::TempDir,
    tool: Write,
}

fn case(max: usize) -> Case {
    let dir = tempfile::tempdir().unwrap();
    let tool = Write::new(Rc::new(Workspace::open(dir.path()).unwrap()), max);
    std::fs::write(dir.path().join("old"), "one\ntwo\n").unwrap();
    Case { dir, tool }
}

fn context() -> CallContext {
    CallContext { cancel: CancellationToken::new(), progress: Progress::new(tokio::sync::mpsc::channel(1).0) }
}

impl Case {
    async fn call(&self, arguments: Value) -> Result<Output, ToolError> {
        (self.tool.prepare(arguments)?.run)(context()).await
    }
    fn content(&self, path: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(path)).unwrap()
    }
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
    fn summary(&self, arguments: Value) -> String {
        self.tool.prepare(arguments).unwrap().summary
    }
}

fn failed(text: &str) -> Result<Output, ToolError> {
    Err(ToolError::Failed(text.to_owned()))
}

#[tokio::test]
async fn create_makes_a_file_and_its_directories_and_reports_its_hash() {
    let case = case(100);
    let output = case.call(json!({"path": "a/b/new", "content": "hi\n", "mode": "create"})).await.unwrap();
    let expected =
        r#"{"bytes":3,"path":"a/b/new","sha256":"98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4"}"#;
    assert_eq!(output, Output { text: expected.to_owned(), success: true, truncated: false });
    assert_eq!(case.content("a/b/new"), "hi\n");
    assert_eq!(case.names(), ["a", "old"]);
}

#[tokio::test]
async fn each_mode_keeps_its_word() {
    let case = case(100);
    symlink("nowhere", case.dir.path().join("dangling")).unwrap();
    for path in ["old", "dangling"] {
        let result = case.call(json!({"path": path, "content": "x", "mode": "create"})).await;
        assert_eq!(result, failed(&format!("{path} exists; mode replace replaces a file")));
    }
    let result = case.call(json!({"path": "new", "content": "x", "mode": "replace"})).await;
    assert_eq!(result, failed("new does not exist; mode create makes it"));
    case.call(json!({"path": "old", "content": "x", "mode": "replace"})).await.unwrap();
    assert_eq!(case.content("old"), "x");
    assert_eq!(case.names(), ["dangling", "old"]);
}

#[tokio::test]
async fn a_replaced_file_keeps_its_mode_but_not_its_set_id_bits() {
    let case = case(100);
    for (mode, kept) in [(0o755, 0o755), (0o600, 0o600), (0o666, 0o666), (0o4755, 0o755)] {
        let path = case.dir.path().join("old");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        case.call(json!({"path": "old", "content": "x", "mode": "replace"})).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, kept);
    }
}

#[tokio::test]
async fn only_the_expected_content_is_replaced() {
    let case = case(100);
    let now = sha256::of(b"one\ntwo\n");
    let replace = |content: &str, hash: &str| json!({"path": "old", "content": content, "mode": "replace", "expected_sha256": hash});
    let other = sha256::of(b"");
    let why = format!("old has changed: its sha256 is {now}, not {other}; read it again");
    assert_eq!(case.call(replace("x", &other)).await, failed(&why));
    assert_eq!(case.content("old"), "one\ntwo\n");
    case.call(replace("x", &now.to_uppercase())).await.unwrap();
    assert_eq!(case.content("old"), "x");
    case.call(replace("y", "")).await.unwrap();
    assert_eq!(case.names(), ["old"]);
}

#[tokio::test]
async fn a_change_after_the_approval_is_seen() {
    let case = case(100);
    let hash = sha256::of(b"one\ntwo\n");
    let prepared =
        case.tool.prepare(json!({"path": "old", "content": "x", "mode": "replace", "expected_sha256": hash})).unwrap();
    std::fs::write(case.dir.path().join("old"), "changed").unwrap();
    let error = (prepared.run)(context()).await.unwrap_err();
    assert!(error.to_string().starts_with("old has changed"), "{error}");
    assert_eq!(case.content("old"), "changed");

    let prepared = case.tool.prepare(json!({"path": "new", "content": "x", "mode": "create"})).unwrap();
    std::fs::write(case.dir.path().join("new"), "theirs").unwrap();
    assert_eq!((prepared.run)(context()).await, failed("new exists; mode replace replaces a file"));
    assert_eq!(case.content("new"), "theirs");
    assert_eq!(case.names(), ["new", "old"]);
}

#[tokio::test]
async fn a_cancelled_call_writes_nothing() {
    let case = case(100);
    let prepared = case.tool.prepare(json!({"path": "old", "content": "x", "mode": "replace"})).unwrap();
    let context = context();
    context.cancel.cancel();
    let error = (prepared.run)(context).await.unwrap_err();
    assert_eq!(error, ToolError::Cancelled("cancelled; old was not written".to_owned()));
    assert_eq!(case.content("old"), "one\ntwo\n");
    assert_eq!(case.names(), ["old"]);
}

#[tokio::test]
async fn what_is_no_regular_file_is_refused_before_anybody_is_asked() {
    let case = case(100);
    let at = |name: &str| case.dir.path().join(name);
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::create_dir(at("d")).unwrap();
    symlink("old", at("link")).unwrap();
    for (path, why) in [
        ("fifo", "fifo is a FIFO, not a regular file"),
        ("d", "d is a directory; name a file in it"),
        ("link", "link is a symlink, not a regular file"),
        ("no/file", "no does not exist in the workspace"),
        ("d/", "d/ is a directory; name a file in it"),
        ("old/file", "cannot open old: Not a directory (os error 20)"),
    ] {
        let refused = case.tool.prepare(json!({"path": path, "content": "", "mode": "replace"})).err();
        assert_eq!(refused, Some(ToolError::Failed(why.to_owned())));
    }
    assert_eq!(case.content("old"), "one\ntwo\n");
}

#[test]
fn arguments_that_cannot_work_are_refused() {
    let case = case(4);
    let invalid = |text: &str| ToolError::Invalid(text.to_owned());
    for (arguments, why) in [
        (
            json!({"path": "a", "content": "12345", "mode": "create"}),
            ToolError::Limit("content has 5 bytes; write takes at most 4".to_owned()),
        ),
        (
            json!({"path": "a", "content": "", "mode": "create", "expected_sha256": "a".repeat(64)}),
            invalid("expected_sha256 goes with mode replace only"),
        ),
        (
            json!({"path": "old", "content": "", "mode": "replace", "expected_sha256": "abc"}),
            invalid("expected_sha256 has to be 64 hex digits"),
        ),
        (json!({"path": "../a", "content": "", "mode": "create"}), invalid("../a leads outside the workspace")),
    ] {
        assert_eq!(case.tool.prepare(arguments).err(), Some(why));
    }
    let mode = case.tool.prepare(json!({"path": "a", "content": "", "mode": "append"})).err().unwrap().to_string();
    assert!(mode.contains("expected `create` or `replace`"), "{mode}");
}

#[test]
fn a_person_sees_what_changes() {
    let case = case(1000);
    std::fs::write(case.dir.path().join(".env"), "KEY=hunter2\n").unwrap();
    let replace = |path: &str, content: &str| json!({"path": path, "content": content, "mode": "replace"});
    assert_eq!(case.summary(json!({"path": "new", "content": "a\n", "mode": "create"})), "create new: 2 bytes\n+ a");
    assert_eq!(case.summary(replace("old", "one\n2\n")), "replace old: 8 → 6 bytes\nfrom line 2\n- two\n+ 2");
    assert_eq!(case.summary(replace("old", "one\ntwo\n")), "replace old: 8 → 8 bytes");
    assert_eq!(case.summary(replace(".env", "KEY=new\n")), "replace .env: 12 → 8 bytes");
}

#[test]
fn the_schema_is_an_object_with_its_required_fields() {
    let parameters = case(1).tool.spec().parameters;
    assert_eq!(parameters["required"], json!(["path", "content", "mode"]));
    assert_eq!(parameters["properties"]["mode"]["enum"], json!(["create", "replace"]));
    assert_eq!(parameters["additionalProperties"], json!(false));
}
