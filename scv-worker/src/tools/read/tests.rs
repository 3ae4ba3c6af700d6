use std::os::unix::fs::symlink;

use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::super::{CallContext, Progress};
use super::*;

fn tool(files: &[(&str, &[u8])], max: usize, default: usize) -> (tempfile::TempDir, Read) {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    let workspace = Rc::new(Workspace::open(dir.path()).unwrap());
    (dir, Read::new(workspace, max, default))
}

fn call(tool: &Read, arguments: Value) -> Result<Output, ToolError> {
    let context =
        CallContext { cancel: CancellationToken::new(), progress: Progress::new(tokio::sync::mpsc::channel(1).0) };
    futures_util::FutureExt::now_or_never((tool.prepare(arguments)?.run)(context)).unwrap()
}

fn read(tool: &Read, arguments: Value) -> Value {
    serde_json::from_str(&call(tool, arguments).unwrap().text).unwrap()
}

#[test]
fn a_whole_file_comes_with_its_hash_and_sorted_fields() {
    let (_dir, tool) = tool(&[("a", b"hi\n")], 100, 100);
    let output = call(&tool, json!({"path": "a"})).unwrap();
    let expected = r#"{"content":"hi\n","offset":0,"sha256":"98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4","total_bytes":3,"truncated":false}"#;
    assert_eq!(output, Output { text: expected.to_owned(), success: true, truncated: false });
}

#[test]
fn a_range_says_where_to_go_on() {
    let (_dir, tool) = tool(&[("a", b"0123456789")], 100, 4);
    let part = |offset: u64, limit: Option<u64>| read(&tool, json!({"path": "a", "offset": offset, "limit": limit}));
    let expected = json!({"content": "0123", "next_offset": 4, "offset": 0, "total_bytes": 10, "truncated": true});
    assert_eq!(part(0, None), expected);
    let expected = json!({"content": "89", "offset": 8, "total_bytes": 10, "truncated": false});
    assert_eq!(part(8, Some(5)), expected);
    let expected = json!({"content": "", "offset": 10, "total_bytes": 10, "truncated": false});
    assert_eq!(part(10, Some(5)), expected);
}

#[test]
fn an_empty_file_is_no_error() {
    let (_dir, tool) = tool(&[("a", b"")], 100, 4);
    assert_eq!(read(&tool, json!({"path": "a"}))["content"], "");
}

#[test]
fn ranges_outside_the_file_or_inside_a_character_are_refused() {
    let (_dir, tool) = tool(&[("a", "漢字".as_bytes()), ("bin", b"\x7fELF\xff")], 100, 100);
    for (arguments, why) in [
        (json!({"path": "a", "offset": 7}), "a: offset 7 is past the end; the file has 6 bytes"),
        (json!({"path": "a", "offset": 4}), "a: offset 4 is inside a character; start at 3 or 6"),
        (json!({"path": "a", "offset": 5}), "a: offset 5 is inside a character; start at 3 or 6"),
        (json!({"path": "a", "limit": 0}), "limit is 0; read takes 1 to 100 bytes at a time"),
        (json!({"path": "a", "limit": 101}), "limit is 101; read takes 1 to 100 bytes at a time"),
    ] {
        assert_eq!(call(&tool, arguments), Err(ToolError::Invalid(why.to_owned())));
    }
    let small = call(&tool, json!({"path": "a", "limit": 2})).unwrap_err();
    assert!(small.to_string().contains("ask for at least 4 bytes"), "{small}");
    let binary = call(&tool, json!({"path": "bin"})).unwrap_err();
    assert_eq!(binary.to_string(), "bin: not UTF-8 text at byte 4; bash can show or convert such a file");
    let far = call(&tool, json!({"path": "a", "offset": u64::MAX}));
    assert!(matches!(far, Err(ToolError::Invalid(_))));
}

proptest! {
    #[test]
    fn going_on_from_result_to_result_gives_the_file(text in "\\PC{0,80}", limit in 4usize..9) {
        let (_dir, tool) = tool(&[("a", text.as_bytes())], 100, limit);
        let mut whole = String::new();
        let mut offset = Some(0);
        while let Some(from) = offset {
            let part = read(&tool, json!({"path": "a", "offset": from}));
            whole += part["content"].as_str().unwrap();
            offset = part["next_offset"].as_u64();
        }
        prop_assert_eq!(whole, text);
    }
}

#[test]
fn secret_like_names_ask_also_behind_a_symlink() {
    let (dir, tool) = tool(&[("a", b""), (".env", b""), ("id_rsa.pub", b"")], 100, 100);
    symlink(".env", dir.path().join("notes")).unwrap();
    for (path, risk) in [
        ("a", Risk::ReadOnly),
        ("id_rsa.pub", Risk::ReadOnly),
        (".env", Risk::Filesystem),
        ("notes", Risk::Filesystem),
        ("missing/server.pem", Risk::Filesystem),
    ] {
        assert_eq!(tool.prepare(json!({"path": path})).unwrap().risk, risk, "{path}");
    }
}

#[test]
fn what_cannot_be_read_is_told() {
    let (dir, tool) = tool(&[], 100, 100);
    nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    for (path, why) in [
        ("fifo", "fifo is a FIFO, not a regular file"),
        ("d", "d is a directory; name a file in it"),
        ("no", "no does not exist in the workspace"),
    ] {
        assert_eq!(call(&tool, json!({"path": path})), Err(ToolError::Failed(why.to_owned())));
    }
    for path in ["../x", "/etc/passwd", ""] {
        assert!(matches!(tool.prepare(json!({"path": path})), Err(ToolError::Invalid(_))), "{path}");
    }
}

#[test]
fn the_schema_advertises_the_limit() {
    let (_dir, tool) = tool(&[], 262_144, 65_536);
    let limit = &tool.spec().parameters["properties"]["limit"];
    assert_eq!((&limit["minimum"], &limit["maximum"]), (&json!(1), &json!(262_144)));
    assert_eq!(limit["description"], "How many bytes to read at most. Default 65536.");
}

#[test]
fn a_summary_spells_out_control_characters() {
    let (_dir, tool) = tool(&[], 100, 50);
    let prepared = tool.prepare(json!({"path": "./a\u{1b}[2J\nb", "offset": 3})).unwrap();
    assert_eq!(prepared.summary, r"read ./a\u{1b}[2J\nb (up to 50 bytes from byte 3)");
}
