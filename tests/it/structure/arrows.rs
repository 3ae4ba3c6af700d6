//! The arrows of docs/architecture.md: between packages, between the worker's modules, and what
//! the supervisor may not link.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use super::source::{Source, read, root};

/// Left may use right, never back.
const PACKAGES: &[(&str, &[&str])] = &[
    ("scv-cli", &["scv-tui", "shared"]),
    ("scv-tui", &["shared"]),
    ("scv-worker", &["shared"]),
    ("scvd", &["shared"]),
    ("shared", &[]),
    ("tests", &["shared"]),
];

/// What a module of the worker may use of the others; `main` may use all.
const WORKER: &[(&str, &[&str])] = &[
    ("agents", &["call", "runs", "secret_like", "workspace"]),
    ("approvals", &["call"]),
    ("call", &[]),
    ("channels", &[]),
    ("demo", &[]),
    ("link", &[]),
    ("provider", &[]),
    ("runs", &[]),
    ("secret_like", &[]),
    (
        "session",
        &[
            "agents",
            "approvals",
            "call",
            "link",
            "provider",
            "runs",
            "secret_like",
            "sha256",
            "skills",
            "tools",
            "turn",
            "workspace",
        ],
    ),
    ("sha256", &[]),
    ("signals", &["session"]),
    ("skills", &["workspace"]),
    ("stdio", &["link", "session", "signals"]),
    (
        "tools",
        &["agents", "approvals", "call", "provider", "runs", "secret_like", "sha256", "skills", "web", "workspace"],
    ),
    ("turn", &["approvals", "call", "provider", "tools"]),
    ("web", &["call"]),
    ("worker", &["link", "session", "signals"]),
    ("workspace", &["secret_like", "sha256"]),
];

/// Modules of `shared` that stand alone: everything else may use them.
const SHARED: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("fs", &[]),
    ("layout", &["fs", "protocol"]),
    ("link", &["protocol"]),
    ("protocol", &["text"]),
    ("text", &[]),
];

/// HTTP, TLS, terminal, markup: a supervisor has none of it.
const NOT_IN_SCVD: &[&str] = &[
    "crossterm",
    "eventsource-stream",
    "h2",
    "hickory-proto",
    "hickory-resolver",
    "html2text",
    "http",
    "http-body",
    "hyper",
    "hyper-util",
    "native-tls",
    "openssl",
    "ratatui",
    "reqwest",
    "ring",
    "rustls",
    "rustls-pki-types",
    "tokio-rustls",
    "tokio-tungstenite",
    "tower",
    "tungstenite",
    "url",
    "webpki",
];

#[test]
fn a_package_uses_only_what_is_right_of_it() {
    let allowed: BTreeMap<&str, &[&str]> = PACKAGES.iter().copied().collect();
    let manifest: toml::Table = read("Cargo.toml".as_ref()).parse().unwrap();
    let mut wrong = Vec::new();
    for member in manifest["workspace"]["members"].as_array().unwrap() {
        let member = member.as_str().unwrap();
        let may = allowed.get(member).unwrap_or_else(|| panic!("{member} is not in the table of packages"));
        let manifest: toml::Table = read(format!("{member}/Cargo.toml").as_ref()).parse().unwrap();
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for name in manifest.get(section).and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys) {
                let name = name.strip_prefix("scv-").filter(|rest| *rest == "shared").unwrap_or(name);
                if allowed.contains_key(name) && !may.contains(&name) {
                    wrong.push(format!("{member} → {name}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that are not in the table: {wrong:#?}");
}

#[test]
fn a_module_of_the_worker_uses_only_what_is_right_of_it() {
    check("scv-worker", WORKER, true);
}

#[test]
fn a_basic_module_of_shared_uses_only_more_basic_ones() {
    check("shared", SHARED, false);
}

/// Checks the arrows of one package. `closed`: a module that is not in the table is an error.
fn check(package: &str, table: &[(&str, &[&str])], closed: bool) {
    assert!(table.is_sorted(), "the table of {package} is sorted");
    let table: BTreeMap<&str, &[&str]> = table.iter().copied().collect();
    let sources: Vec<Source> = Source::all().into_iter().filter(|source| source.package() == package).collect();
    let modules: BTreeSet<String> = sources.iter().filter_map(|source| source.module().into_iter().next()).collect();
    let mut wrong = Vec::new();
    for source in &sources {
        let module = source.module();
        let Some(own) = module.first() else { continue };
        let Some(may) = table.get(own.as_str()) else {
            if closed {
                wrong.push(format!("{}: the module {own} is not in the table", source.path.display()));
            }
            continue;
        };
        for (at, used) in imports(&source.code, &module) {
            if used != *own && modules.contains(&used) && !may.contains(&used.as_str()) {
                wrong.push(format!("{}: {own} → {used}", source.place(at)));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that are not in the table: {wrong:#?}");
}

/// The top-level modules that code of `module` names by `crate::` or `super::`, with their places.
fn imports(code: &str, module: &[String]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, word) in code.match_indices("crate::") {
        found.extend(heads(&code[at + word.len()..]).into_iter().map(|head| (at, head)));
    }
    let chains = code.match_indices("super::").filter(|(at, _)| !code[..*at].ends_with("super::"));
    for (at, word) in chains {
        let chain = &code[at..];
        let ups = chain.split(word).take_while(|between| between.is_empty()).count();
        // Only what leads out of the crate's top-level module matters.
        if ups == module.len() {
            found.extend(heads(&chain[ups * word.len()..]).into_iter().map(|head| (at, head)));
        }
    }
    found
}

/// The first names of a path: of `a::b` it is `a`, of `{a, b::{c, d}}` they are `a` and `b`.
fn heads(path: &str) -> Vec<String> {
    let name = |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let mut depth = 0;
    let mut heads = Vec::new();
    let mut start = Some(0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = Some(at + 1),
            c if start.is_some() && !c.is_whitespace() => {
                heads.push(name(&group[at..]));
                start = None;
            }
            _ => {}
        }
    }
    heads
}

#[test]
fn an_import_is_found_however_it_is_written() {
    let module = ["tools".to_owned(), "read".to_owned()];
    let code = "use crate::{a, b::{c, d},\n e}; use super::f; super::super::g::h(); crate::i()";
    let found: Vec<String> = imports(code, &module).into_iter().map(|(_, name)| name).collect();
    assert_eq!(found, ["a", "b", "e", "i", "g"]);
}

#[test]
fn the_supervisor_links_no_http_tls_or_terminal() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let tree = Command::new(cargo)
        .args(["tree", "-e", "normal", "-p", "scvd", "--locked", "--offline", "--prefix", "none", "--format", "{p}"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    let linked: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(linked.contains("tokio") && linked.contains("scv-shared"), "this is no dependency tree: {tree}");
    let wrong: Vec<&&str> = NOT_IN_SCVD.iter().filter(|name| linked.contains(*name)).collect();
    assert!(wrong.is_empty(), "scvd links {wrong:?}");
}
