//! Where the supervisor, and what it starts by itself, look for programs: what the user's own
//! shell finds should be found there too.

use super::facts::{Facts, Whose};
use super::finding::Finding;
use crate::service::login_path;

const CHECK: &str = "path";

/// Looks. The login shell is asked only where a service stands for it.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let whose = match facts.path.of {
        Whose::Supervisor => "of the supervisor",
        Whose::Unit => "of the service",
        Whose::Shell => "of this shell",
    };
    let is_a_service = facts.path.of == Whose::Unit || facts.status().is_some_and(|status| status.service.is_some());
    let found = format!("PATH {whose}: {}", facts.path.value);
    if !is_a_service {
        return vec![Finding::ok(CHECK, found)];
    }
    match login_path::ask(&facts.context.env) {
        Err(unknown) => {
            let todo = "mend the profile; until then the service keeps the PATH that it has";
            vec![Finding::warn(CHECK, format!("the login shell's is not known: {unknown}"), todo)]
        }
        Ok(login) => vec![judge(found, &facts.path.value, &login)],
    }
}

fn judge(found: String, has: &str, login: &str) -> Finding {
    let dirs = |path: &str| std::env::split_paths(path).collect::<Vec<_>>();
    let has = dirs(has);
    let missing: Vec<String> =
        dirs(login).iter().filter(|dir| !has.contains(dir)).map(|dir| dir.display().to_string()).collect();
    if missing.is_empty() {
        return Finding::ok(CHECK, found);
    }
    let says = format!("a login shell also looks in {}", missing.join(", "));
    Finding::warn(CHECK, says, "`scv start` gives the service the PATH of now; sessions go on")
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn a_directory_that_only_the_login_shell_has_is_named() {
        let judge = |has, login| judge("PATH".into(), has, login);
        assert_eq!(judge("/a:/b", "/b:/a").state, State::Ok);
        let found = judge("/a", "/n/bin:/a:/m/bin");
        assert_eq!(found.state, State::Warn);
        assert!(found.says.ends_with("/n/bin, /m/bin"), "{}", found.says);
    }
}
