//! Reads the workspace's sources: which files there are, and their code without comments,
//! strings and test modules.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace's directory.
pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a member of the workspace")
}

/// Every file that is part of the repository, relative to its root.
pub(super) fn files() -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root())
        .output()
        .expect("git is there");
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let text = String::from_utf8(listed.stdout).expect("our file names are UTF-8");
    let files: Vec<PathBuf> =
        text.split_terminator('\0').map(PathBuf::from).filter(|path| root().join(path).is_file()).collect();
    assert!(files.len() > 20, "git lists only {} files", files.len());
    files
}

/// A file's text.
pub(super) fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One Rust file.
pub(super) struct Source {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// The text as it stands.
    pub text: String,
    /// The text with comments and the insides of literals blanked; as long as the text.
    pub code: String,
    /// Every string literal's content, with its place in the text.
    pub strings: Vec<(usize, String)>,
}

impl Source {
    /// Every Rust file of the repository.
    pub(super) fn all() -> Vec<Self> {
        let rust = files().into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
        rust.map(|path| Self::new(path.clone(), read(&path))).collect()
    }

    fn new(path: PathBuf, text: String) -> Self {
        let (code, strings) = blank(&text);
        Self { path, text, code, strings }
    }

    /// The crate's directory, such as `scv-worker`.
    pub(super) fn package(&self) -> &str {
        self.path.iter().next().and_then(|part| part.to_str()).unwrap_or_default()
    }

    /// The path of its module below the crate: `src/tools/mod.rs` is `[tools]`.
    pub(super) fn module(&self) -> Vec<String> {
        let mut parts: Vec<String> =
            self.path.with_extension("").iter().skip(2).map(|part| part.to_string_lossy().into_owned()).collect();
        if parts.last().is_some_and(|last| ["mod", "main", "lib"].contains(&last.as_str())) {
            parts.pop();
        }
        parts
    }

    /// Whether the file is only compiled for tests.
    pub(super) fn is_test(&self) -> bool {
        self.package() == "tests" || self.path.iter().any(|part| part == "tests" || part == "tests.rs")
    }

    /// The line of a place in the text, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    /// `path:line`, for a message.
    pub(super) fn place(&self, at: usize) -> String {
        format!("{}:{}", self.path.display(), self.line(at))
    }

    /// The code with its `#[cfg(test)]` modules blanked too.
    pub(super) fn product_code(&self) -> String {
        if self.is_test() {
            return " ".repeat(self.code.len());
        }
        let mut code = self.code.clone().into_bytes();
        for (start, end) in self.test_modules() {
            code[start..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        }
        String::from_utf8(code).expect("blanking keeps UTF-8: the code is ASCII outside of literals and comments")
    }

    /// Where the bodies of inline `#[cfg(test)]` modules are.
    pub(super) fn test_modules(&self) -> Vec<(usize, usize)> {
        let marks = self.code.match_indices("#[cfg(test)]");
        marks.filter_map(|(at, mark)| Some((at, end_of_block(&self.code, at + mark.len())?))).collect()
    }
}

/// The end of the first `{…}` after `from`; none where a `;` comes first.
fn end_of_block(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b';' if depth == 0 => return None,
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The code with comments and literals blanked byte by byte, and the string literals.
fn blank(text: &str) -> (String, Vec<(usize, String)>) {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut strings = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let end = if rest.starts_with("//") {
            at + rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            at + rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some((open, close)) = string_start(text, at) {
            let inside = at + open;
            let length = string_length(&text[inside..], &close);
            strings.push((at, text[inside..inside + length].to_owned()));
            (inside + length + close.len()).min(bytes.len())
        } else if let Some(length) = char_literal(rest) {
            at + length
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        };
        code[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at = end;
    }
    (String::from_utf8_lossy(&code).into_owned(), strings)
}

/// The length of a string literal's opening at `at`, and what closes it.
fn string_start(text: &str, at: usize) -> Option<(usize, String)> {
    let before = text[..at].chars().next_back();
    let rest = &text[at..];
    if rest.starts_with('"') {
        return Some((1, "\"".to_owned()));
    }
    if before.is_some_and(|before| before.is_alphanumeric() || before == '_') {
        return None;
    }
    let raw = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    raw[hashes..].starts_with('"').then(|| (rest.len() - raw.len() + hashes + 1, format!("\"{}", "#".repeat(hashes))))
}

/// The bytes up to what closes the literal.
fn string_length(inside: &str, close: &str) -> usize {
    if close.len() > 1 {
        return inside.find(close).unwrap_or(inside.len());
    }
    let mut escaped = false;
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return at,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    inside.len()
}

/// The length of a character literal that `rest` begins with; a lifetime is none.
fn char_literal(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    if let Some(escape) = inside.strip_prefix('\\') {
        // The escaped character itself may be a quote.
        let skipped = escape.chars().next()?.len_utf8();
        return Some(2 + skipped + escape[skipped..].find('\'')? + 1);
    }
    let character = inside.chars().next()?.len_utf8();
    inside[character..].starts_with('\'').then_some(character + 2)
}

#[test]
fn comments_and_literals_are_no_code() {
    let (code, strings) =
        blank("a(\"x \\\" y\"); // b\nlet c = 'd'; let q = '\\''; /* e */ f::<'g>(r#\"h\"i\"#) \"\\\\\" j");
    assert!(["a(", "let c", "f::<'g>(", "j"].iter().all(|kept| code.contains(kept)), "{code}");
    assert!(["x", "b", "d", "e ", "h", "\\"].iter().all(|gone| !code.contains(gone)), "{code}");
    let strings: Vec<&str> = strings.iter().map(|(_, content)| content.as_str()).collect();
    assert_eq!(strings, ["x \\\" y", "h\"i", "\\\\"]);
}

#[test]
fn an_inline_test_module_is_no_product_code() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod tests {\n fn b() { }\n}\nfn c() {}\n";
    let source = Source::new("shared/src/x.rs".into(), text.into());
    let code = source.product_code();
    assert!(code.contains("fn a") && code.contains("fn c") && !code.contains("fn b"), "{code}");
}
