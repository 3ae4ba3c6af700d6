//! The golden frames: one message of the wire a line, as released; they are read, never rewritten.

use std::path::Path;

use serde_json::Value;

/// The frames of `tests/golden/<name>.jsonl`.
pub fn frames(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{}:{}: {error}", path.display(), number + 1))
    };
    text.lines().enumerate().map(parse).collect()
}
