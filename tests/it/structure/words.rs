//! Words that never stand in the repository.

use std::path::Path;

use super::source::{Source, files, read, root};

/// Where `unsafe` may stand.
const UNSAFE: &[&str] = &["shared/src/process/sys.rs"];

/// In product and test code alike.
const NEVER: &[(&str, &str)] = &[
    ("#[ignore", "a test that is not run proves nothing"),
    ("dbg!(", "left over"),
    ("pre_exec(", "it turns posix_spawn into fork: 9 ms instead of 0.5 ms from a process of 200 MB"),
    ("todo!(", "not done"),
    ("unimplemented!(", "not done"),
];

#[test]
fn no_unfinished_or_forbidden_code() {
    let mut wrong = Vec::new();
    for source in Source::all() {
        for (word, why) in NEVER {
            wrong
                .extend(source.code.match_indices(word).map(|(at, _)| format!("{}: {word} ({why})", source.place(at))));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unsafe_stands_in_one_file_and_each_block_has_its_reason() {
    let mut wrong = Vec::new();
    for source in Source::all() {
        let allowed = UNSAFE.iter().any(|path| source.path == Path::new(path));
        for (at, _) in source.code.match_indices("unsafe ") {
            let starts_word = !source.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let reason = source.text[..at].lines().rev().take(4).any(|line| line.contains("SAFETY:"));
            if starts_word && !(allowed && reason) {
                wrong.push(source.place(at));
            }
        }
    }
    assert!(wrong.is_empty(), "`unsafe` outside of {UNSAFE:?}, or without a SAFETY line: {wrong:#?}");
}

#[test]
fn nothing_names_the_place_where_it_was_made() {
    let mut words: Vec<String> = [
        // In two parts, so that this file does not name them.
        ("registry.", "npmjs"),
        ("index.", "crates.io"),
        ("static.", "crates.io"),
        ("files.", "pythonhosted"),
        ("deb.", "debian.org"),
        ("\"reso", "lved\":"),
        ("co-author", "ed-by"),
        ("generated ", "by ai"),
    ]
    .map(|(a, b)| format!("{a}{b}"))
    .into();
    words.extend(place());
    let mut wrong = Vec::new();
    for path in files() {
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            for word in &words {
                let starts_path = |at: usize| {
                    !word.starts_with('/')
                        || !lower[..at].ends_with(|c: char| c.is_alphanumeric() || "./-_~}".contains(c))
                };
                if lower.match_indices(word.as_str()).any(|(at, _)| starts_path(at)) {
                    wrong.push(format!("{}:{}: {word}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The directory that this checkout lies in, and the one above, as path prefixes; none where it
/// is a place that every machine has.
fn place() -> Vec<String> {
    const EVERYWHERE: &[&str] = &["/", "/home/", "/root/", "/tmp/", "/var/tmp/", "/usr/src/", "/src/", "/opt/"];
    let above = root().ancestors().skip(1).map(|dir| format!("{}/", dir.display()).replace("//", "/").to_lowercase());
    above.take(2).filter(|dir| !EVERYWHERE.contains(&dir.as_str())).collect()
}

#[test]
fn every_tracked_text_ends_its_lines_plainly() {
    let mut wrong = Vec::new();
    for path in files() {
        let kind = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if ["rs", "toml", "md"].contains(&kind) {
            let text = read(&path);
            if text.contains('\r') || !(text.is_empty() || text.ends_with('\n')) {
                wrong.push(path);
            }
        }
    }
    assert!(wrong.is_empty(), "a CR, or no newline at the end: {wrong:#?}");
}
