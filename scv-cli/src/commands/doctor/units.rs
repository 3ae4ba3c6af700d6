//! The units of this home: installed, of this release, enabled.

use super::facts::Facts;
use super::finding::Finding;
use crate::service::units;

const CHECK: &str = "units";

/// Looks, where there is a manager for them.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let (Some(service), Ok(scvd)) = (&facts.service, &facts.scvd) else { return Vec::new() };
    let path = facts.units.as_ref().and_then(|[service, _]| units::path_in(service)).unwrap_or_default();
    let wanted = units::contents(&facts.context.layout, scvd, &path);
    vec![match (wanted, &facts.units) {
        (Err(unfit), _) => Finding::warn(
            CHECK,
            format!("systemd cannot serve this home: {unfit}"),
            "choose another home with `--scv-home`, or go on under the guard",
        ),
        (Ok(_), None) => Finding::warn(
            CHECK,
            "not installed: nothing starts the supervisor at boot or after a crash of its guard",
            "`scv start` installs them",
        ),
        (Ok(wanted), Some(installed)) => judge(
            &service.names.service,
            wanted == *installed,
            facts.property("UnitFileState") == "enabled",
            facts.context.layout.stopped().exists(),
        ),
    }]
}

fn judge(unit: &str, is_of_this_release: bool, is_enabled: bool, is_stopped: bool) -> Finding {
    if !is_of_this_release {
        let says = format!("{unit} is not as this release would write it");
        return Finding::warn(CHECK, says, "`scv start` writes it; sessions go on");
    }
    match (is_enabled, is_stopped) {
        (true, _) => Finding::ok(CHECK, format!("{unit} is installed and starts at boot")),
        (false, true) => Finding::ok(CHECK, format!("{unit} is installed and, since `scv stop`, not started at boot")),
        (false, false) => Finding::warn(CHECK, format!("{unit} is not started at boot"), "`scv start` has it started"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn a_unit_is_of_this_release_and_enabled_unless_stopped_on_purpose() {
        let state = |same, enabled, stopped| judge("u", same, enabled, stopped).state;
        assert_eq!(state(true, true, false), State::Ok);
        assert_eq!(state(true, false, true), State::Ok);
        assert_eq!(state(true, false, false), State::Warn);
        assert_eq!(state(false, true, false), State::Warn);
    }
}
