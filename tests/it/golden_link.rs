//! The link as released: what a supervisor and a worker of each release say, a file a version, is
//! read by today's types and written back as it was. A version's files are only added to.

use std::collections::BTreeSet;

use scv_tests::golden;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use shared::link::{OLDEST_VERSION, ToSupervisor, ToWorker, VERSION};

fn read_and_write<M: DeserializeOwned + Serialize + PartialEq>(name: &str, unknown: &M) -> BTreeSet<String> {
    let mut types = BTreeSet::new();
    for frame in golden::frames(name) {
        let message: M = serde_json::from_value(frame.clone()).unwrap_or_else(|bad| panic!("{bad}: {frame}"));
        assert!(message != *unknown, "{name}: {frame}");
        assert_eq!(serde_json::to_value(&message).unwrap(), frame, "{name}");
        types.insert(frame["type"].as_str().unwrap().to_owned());
    }
    types
}

#[test]
fn every_version_that_is_accepted_is_read_and_written_as_it_was() {
    for version in OLDEST_VERSION..=VERSION {
        let to_worker = read_and_write(&format!("link-{version}-to-worker"), &ToWorker::Unknown);
        let to_supervisor = read_and_write(&format!("link-{version}-to-supervisor"), &ToSupervisor::Unknown);
        assert!(to_worker.contains("hello") && to_supervisor.contains("hello"));
    }
}

#[test]
fn every_message_of_today_has_a_golden_frame() {
    let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/src/link/mod.rs")).unwrap();
    for (name, file) in [("ToWorker", "to-worker"), ("ToSupervisor", "to-supervisor")] {
        let body = source.split(&format!("pub enum {name} {{\n")).nth(1).unwrap().split("\n}\n").next().unwrap();
        let variants = body.lines().filter_map(|line| line.strip_prefix("    ")?.split(" {").next().map(str::to_owned));
        let is_variant =
            |name: &String| name.starts_with(char::is_uppercase) && name.chars().all(char::is_alphanumeric);
        let there: BTreeSet<String> = golden::frames(&format!("link-{VERSION}-{file}"))
            .iter()
            .map(|frame| frame["type"].as_str().unwrap().to_owned())
            .collect();
        let wanted: BTreeSet<String> = variants.filter(is_variant).map(|variant| snake(&variant)).collect();
        assert!(wanted.len() > 5, "{wanted:?}");
        assert_eq!(there, wanted, "{name}");
    }
}

#[test]
fn one_version_back_is_accepted_and_no_more() {
    assert_eq!(OLDEST_VERSION, VERSION - 1);
    let hello = &golden::frames(&format!("link-{VERSION}-to-supervisor"))[0];
    assert_eq!(hello["link_version"], Value::from(VERSION));
}

fn snake(name: &str) -> String {
    let mut text = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}
