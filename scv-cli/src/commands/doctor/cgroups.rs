//! Control groups: what ends a session's processes at once, limits and measures them.

use shared::process::Cgroup;

use super::facts::Facts;
use super::finding::Finding;

const CHECK: &str = "cgroups";

/// Looks at the supervisor's, or at this process's own.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let pid = facts.status().map_or(std::process::id().cast_signed(), |status| status.pid);
    let controllers = Cgroup::of(pid).ok().flatten().map(|cgroup| cgroup.controllers());
    let limit = facts.config.as_ref().map(|config| !config.supervisor.worker_memory_max.is_empty());
    vec![judge(controllers.as_deref(), limit.unwrap_or(false))]
}

fn judge(controllers: Option<&[String]>, wants_a_limit: bool) -> Finding {
    let Some(controllers) = controllers else {
        return Finding::warn(
            CHECK,
            "version 2 is not mounted: processes are found by their parents and tags only",
            "boot with systemd.unified_cgroup_hierarchy=1, or go on without",
        );
    };
    let has_memory = controllers.iter().any(|controller| controller == "memory");
    if wants_a_limit && !has_memory {
        return Finding::warn(
            CHECK,
            "supervisor.worker_memory_max has no effect: the memory controller is not delegated to you",
            "as root: add `Delegate=cpu memory pids` to user@.service (systemctl edit user@.service)",
        );
    }
    match controllers.join(", ") {
        none if none.is_empty() => Finding::ok(CHECK, "version 2, without a controller: sessions are not measured"),
        some => Finding::ok(CHECK, format!("version 2 with {some}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn a_limit_without_its_controller_is_told() {
        let memory = ["cpu".to_owned(), "memory".to_owned()];
        assert_eq!(judge(None, false).state, State::Warn);
        assert_eq!(judge(Some(&memory), true).state, State::Ok);
        assert_eq!(judge(Some(&memory[..1]), true).state, State::Warn);
        assert_eq!(judge(Some(&memory[..1]), false).says, "version 2 with cpu");
    }
}
