//! The home: whose it is, and who else can read or change it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::facts::Facts;
use super::finding::Finding;

const CHECK: &str = "home";

/// Others may read.
const READ: u32 = 0o055;
/// Others may change.
const WRITE: u32 = 0o022;

/// Looks at the home and at what is private in it.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let layout = &facts.context.layout;
    let own = rustix::process::geteuid().as_raw();
    let mut found = Vec::new();
    for (path, is_private) in [
        (layout.home().to_owned(), false),
        (layout.state(), true),
        (layout.config(), true),
        (layout.credentials(), true),
    ] {
        match std::fs::metadata(&path) {
            Ok(metadata) => found.extend(judge(&path, &Owned::of(&metadata), own, is_private)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let says = format!("cannot look at {}: {error}", path.display());
                found.push(Finding::fail(CHECK, says, "look at the permissions of the directories above it"));
            }
        }
    }
    if found.is_empty() {
        found.push(Finding::ok(CHECK, format!("{} is yours alone to change", layout.home().display())));
    }
    found
}

/// What matters of a file's status.
struct Owned {
    uid: u32,
    mode: u32,
    is_dir: bool,
}

impl Owned {
    fn of(metadata: &Metadata) -> Self {
        Self { uid: metadata.uid(), mode: metadata.mode(), is_dir: metadata.is_dir() }
    }
}

fn judge(path: &Path, found: &Owned, own: u32, is_private: bool) -> Option<Finding> {
    let path = path.display();
    let private = if found.is_dir { "700" } else { "600" };
    let others_read = if found.is_dir { READ } else { READ & 0o044 };
    if found.uid != own {
        let says = format!("{path} belongs to user {}, not to you", found.uid);
        return Some(Finding::fail(CHECK, says, "choose a home of your own with `--scv-home`"));
    }
    if found.mode & WRITE != 0 {
        let says = format!("{path} can be changed by others");
        return Some(Finding::fail(CHECK, says, format!("chmod go-w {path}")));
    }
    if is_private && found.mode & others_read != 0 {
        let says = format!("{path} can be read by others");
        return Some(Finding::warn(CHECK, says, format!("chmod {private} {path}")));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn a_private_file_is_its_owners_alone() {
        let state = |uid, mode, is_dir, is_private| {
            judge(Path::new("/h"), &Owned { uid, mode, is_dir }, 7, is_private).map(|finding| finding.state)
        };
        assert_eq!(state(7, 0o40700, true, true), None);
        assert_eq!(state(7, 0o40755, true, false), None);
        assert_eq!(state(7, 0o40755, true, true), Some(State::Warn));
        assert_eq!(state(7, 0o40770, true, false), Some(State::Fail));
        assert_eq!(state(7, 0o100_600, false, true), None);
        assert_eq!(state(7, 0o100_644, false, true), Some(State::Warn));
        assert_eq!(state(8, 0o40700, true, false), Some(State::Fail));
    }
}
