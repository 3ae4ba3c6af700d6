//! Links between the documents lead somewhere.

use std::path::Path;

use super::source::{files, read, root};

#[test]
fn every_link_of_the_documents_leads_to_a_file_and_a_heading() {
    let documents = files().into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut wrong = Vec::new();
    for document in documents {
        let text = read(&document);
        for target in targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) =
                target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
            let directory = document.parent().unwrap_or(Path::new(""));
            let path = if file.is_empty() { document.clone() } else { directory.join(file) };
            let found = root().join(&path).exists()
                && heading.is_none_or(|heading| headings(&read(&path)).iter().any(|known| known == heading));
            if !found {
                wrong.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere: {wrong:#?}");
}

/// The targets of `[text](target)`, outside of code.
fn targets(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (_, line) in prose(text) {
        for (at, _) in line.match_indices("](") {
            if line[..at].matches('`').count() % 2 == 0 {
                let rest = &line[at + 2..];
                found.extend(rest.find(')').map(|end| &rest[..end]));
            }
        }
    }
    found
}

/// The headings as anchors name them: lower case, spaces to hyphens, punctuation dropped.
fn headings(text: &str) -> Vec<String> {
    let headings = prose(text).filter_map(|(_, line)| line.strip_prefix('#').map(|rest| rest.trim_start_matches('#')));
    let anchor = |heading: &str| -> String {
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// The lines outside of fenced code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

#[test]
fn an_anchor_is_made_of_its_heading() {
    assert_eq!(headings("# A `b` & c\n```\n# no\n```\n## D-e"), ["a-b--c", "d-e"]);
    assert_eq!(targets("[a](b.md#c) `[x](y)` [d](e)"), ["b.md#c", "e"]);
}
