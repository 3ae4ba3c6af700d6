//! The kernel: which of the ways to keep and end processes it has.

use super::facts::Facts;
use super::finding::Finding;

const CHECK: &str = "kernel";

/// `openat2`, without which no file of a workspace is opened.
const NEEDED: (u32, u32) = (5, 6);

/// `cgroup.kill`, which ends a whole cgroup at once.
const WANTED: (u32, u32) = (5, 14);

/// Looks.
pub(super) fn check(_facts: &Facts) -> Vec<Finding> {
    let uname = rustix::system::uname();
    vec![judge(&uname.release().to_string_lossy())]
}

fn judge(release: &str) -> Finding {
    let says = format!("Linux {release}");
    match version(release) {
        Some(version) if version < NEEDED => {
            Finding::fail(CHECK, format!("{says} is too old"), "Linux 5.14 or later has all that is needed")
        }
        Some(version) if version < WANTED => Finding::warn(
            CHECK,
            format!("{says} cannot end a whole control group at once; what hides is looked for by other ways"),
            "Linux 5.14 or later can",
        ),
        _ => Finding::ok(CHECK, says),
    }
}

/// The first two numbers of `5.14.0-70.el9`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn a_kernel_is_judged_by_its_first_two_numbers() {
        for (release, state) in [
            ("4.19.0-amd64", State::Fail),
            ("5.4.0", State::Fail),
            ("5.10.0-28-amd64", State::Warn),
            ("5.14.0-70.el9.x86_64", State::Ok),
            ("6.1", State::Ok),
            ("what is this", State::Ok),
        ] {
            assert_eq!(judge(release).state, state, "{release}");
        }
    }
}
