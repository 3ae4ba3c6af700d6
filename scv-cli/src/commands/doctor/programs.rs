//! Our own programs, of one release, and the shell that commands run in.

use super::facts::Facts;
use super::finding::Finding;

const CHECK: &str = "programs";

/// What `bash` calls are run by.
const SHELL: &str = "/bin/bash";

/// Looks.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut found: Vec<Finding> =
        [&facts.scvd, &facts.worker].into_iter().filter_map(|program| program.as_ref().err()).map(wrong).collect();
    if !std::path::Path::new(SHELL).is_file() {
        found.push(Finding::fail(CHECK, format!("there is no {SHELL}: sessions cannot run commands"), "install bash"));
    }
    if found.is_empty() {
        let scvd = facts.scvd.as_ref().map(|scvd| scvd.parent().unwrap_or(scvd).display().to_string());
        let place = scvd.map(|dir| format!(", scvd in {dir}")).unwrap_or_default();
        found.push(Finding::ok(CHECK, format!("scv, scvd and scv-worker {}{place}", shared::RELEASE)));
    }
    found
}

fn wrong(error: &crate::error::CliError) -> Finding {
    Finding::error(CHECK, error)
}
