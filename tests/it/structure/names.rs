//! Adding is local: an agent, a tool or a channel is named in its own file and in its table, and
//! nowhere else in the product.

use std::path::Path;

use super::source::Source;

/// Agents: their files are `scv-worker/src/agents/{adapters,output}/<name>`.
const AGENTS: &[&str] = &["claude", "codex", "dsh", "grok"];

/// Channels: their folder is `scv-worker/src/channels/<name>`.
const CHANNELS: &[&str] = &["feishu", "slack", "wechat"];

/// Tools, as string literals; as words they are too common. Their file is `scv-worker/src/tools/<name>`.
const TOOLS: &[&str] = &[
    "agent_cancel",
    "agent_status",
    "agent_wait",
    "bash",
    "chat_attach",
    "chat_history",
    "chat_keep",
    "read",
    "read_skill",
    "web_fetch",
    "web_search",
    "write",
];

/// Where all of a kind may be named: the tables of the worker, and those of what can be configured.
const TABLES: &[&str] = &[
    "scv-worker/src/agents/adapters/mod.rs",
    "scv-worker/src/agents/output/mod.rs",
    "scv-worker/src/channels/mod.rs",
    "scv-worker/src/tools/mod.rs",
    "shared/src/config/agents.rs",
    "shared/src/config/supervisor.rs",
];

/// A name in the words that the contract prescribes.
const PRESCRIBED: &[(&str, &str)] = &[("scv-worker/src/agents/adapters/codex.rs", "claude")];

/// Who plays the parts of the demonstration has to name them.
const DEMO: &[&str] = &["scv-cli/src/commands/demo", "scv-cli/src/demo", "scv-worker/src/demo"];

#[test]
fn an_agent_or_channel_is_named_in_its_own_file_and_its_table() {
    let mut wrong = Vec::new();
    for source in Source::all() {
        let code = source.product_code().to_lowercase();
        let strings = product_strings(&source);
        let named = |name: &str| {
            let mut places: Vec<usize> = words(&code, name);
            places
                .extend(strings.iter().filter(|(_, text)| !words(&text.to_lowercase(), name).is_empty()).map(|s| s.0));
            places
        };
        let kinds = [
            (&["scv-worker/src/agents/adapters", "scv-worker/src/agents/output"][..], AGENTS),
            (&["scv-worker/src/channels"], CHANNELS),
        ];
        for (folders, names) in kinds {
            for name in names {
                let prescribed = PRESCRIBED.iter().any(|(path, said)| said == name && source.path == Path::new(path));
                if !prescribed && !folders.iter().any(|folder| is_home(&source.path, folder, name)) {
                    wrong.extend(named(name).into_iter().map(|at| format!("{}: {name}", source.place(at))));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "named outside of its own file and its table: {wrong:#?}");
}

#[test]
fn a_tool_is_named_in_its_own_file_and_its_table() {
    let mut wrong = Vec::new();
    for source in Source::all().into_iter().filter(|source| source.package() == "scv-worker") {
        for (at, text) in product_strings(&source) {
            if TOOLS.contains(&text.as_str()) && !is_home(&source.path, "scv-worker/src/tools", &text) {
                wrong.push(format!("{}: \"{text}\"", source.place(at)));
            }
        }
    }
    assert!(wrong.is_empty(), "named outside of its own file and its table: {wrong:#?}");
}

/// The string literals outside of tests.
fn product_strings(source: &Source) -> Vec<(usize, String)> {
    if source.is_test() {
        return Vec::new();
    }
    let tests = source.test_modules();
    let in_test = |at: usize| tests.iter().any(|(start, end)| (*start..*end).contains(&at));
    source.strings.iter().filter(|(at, _)| !in_test(*at)).cloned().collect()
}

/// Whether `path` may say `name`: its own file or folder, the table, the demonstration.
fn is_home(path: &Path, folder: &str, name: &str) -> bool {
    let text = path.to_string_lossy();
    let own = text.strip_prefix(&format!("{folder}/{name}"));
    own.is_some_and(|rest| rest == ".rs" || rest.starts_with('/') || rest.starts_with('_'))
        || TABLES.iter().any(|table| path == Path::new(table))
        || DEMO.iter().any(|demo| text.starts_with(demo))
}

/// Where `word` stands in `text` as a part of a name: bounded by anything but letters and digits.
fn words(text: &str, word: &str) -> Vec<usize> {
    let bounded = |at: usize| {
        let letter = |c: char| c.is_ascii_alphanumeric();
        !text[..at].ends_with(letter) && !text[at + word.len()..].starts_with(letter)
    };
    text.match_indices(word).map(|(at, _)| at).filter(|at| bounded(*at)).collect()
}
