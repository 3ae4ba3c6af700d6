//! Every rule of the tools' contract names the test that proves it; see tests/seed.toml.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::source::{Source, read};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seed {
    rule: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    id: String,
    section: String,
    #[serde(rename = "rule")]
    sentence: String,
    test: String,
}

fn rules() -> Vec<Rule> {
    let seed: Seed = toml::from_str(&read("tests/seed.toml".as_ref())).expect("rows of rules");
    seed.rule
}

#[test]
fn every_rule_stands_once() {
    let rules = rules();
    let ids: BTreeSet<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
    let texts: BTreeSet<&str> = rules.iter().map(|rule| rule.sentence.as_str()).collect();
    assert_eq!((ids.len(), texts.len()), (rules.len(), rules.len()), "an id or a sentence stands twice");
    assert!(rules.iter().all(|rule| !rule.section.is_empty() && rule.sentence.len() > 10));
}

#[test]
fn every_rule_is_proven_by_a_test_that_exists() {
    let tests: BTreeSet<String> = Source::all().iter().flat_map(tests_of).collect();
    let mut wrong = Vec::new();
    for Rule { id, sentence, test, .. } in rules() {
        if test.is_empty() {
            wrong.push(format!("{id}: no test yet: {sentence}"));
        } else if !tests.contains(&test) {
            wrong.push(format!("{id}: no such test: {test}"));
        }
    }
    assert!(wrong.is_empty(), "{} rules are not proven:\n{}", wrong.len(), wrong.join("\n"));
}

/// The names of a file's tests, as the runner prints them after the binary.
fn tests_of(source: &Source) -> Vec<String> {
    // Of the package of tests only the binary `it` and the library have tests: `tests/it/x.rs` is the module `x`.
    let module = source.module();
    let mut names = Vec::new();
    let mut inline: Option<String> = None;
    let mut marked = false;
    for line in source.code.lines() {
        let code = line.trim();
        if !line.starts_with(' ') && !code.is_empty() {
            // A block of the top level begins or ends here.
            inline = code.strip_suffix('{').and_then(|head| head.trim().strip_prefix("mod ")).map(str::to_owned);
        }
        if code.starts_with("#[test]") || code.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some((_, rest)) = code.split_once("fn ").filter(|_| marked) {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let path = module.iter().chain(&inline).chain([&name]);
            names.push(path.map(String::as_str).collect::<Vec<_>>().join("::"));
            marked = false;
        }
    }
    names
}

#[test]
fn a_test_is_known_by_its_path() {
    let tests: BTreeSet<String> = Source::all().iter().flat_map(tests_of).collect();
    assert!(tests.contains("structure::seed::a_test_is_known_by_its_path"));
    assert!(tests.contains("layout::tests::two_spellings_of_a_home_are_one_instance"));
}
