//! Whether the user manager, and with it everything of ours, outlives the last logout.

use std::path::Path;

use crate::context::Context;

/// Where logind keeps who lingers (logind.conf(5), loginctl(1)).
const LINGERERS: &str = "/var/lib/systemd/linger";

/// What linger means for this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Linger {
    /// It is on.
    On,
    /// It is off; the command switches it on.
    Off {
        /// To be typed by the user.
        command: String,
    },
}

/// Looks.
pub(crate) fn look(context: &Context) -> Linger {
    let uid = rustix::process::getuid().as_raw();
    let known = ["USER", "LOGNAME"].iter().find_map(|name| context.env.get(*name));
    let name = known.cloned().unwrap_or_else(|| uid.to_string());
    of(Path::new(LINGERERS), &name)
}

fn of(lingerers: &Path, name: &str) -> Linger {
    if lingerers.join(name).exists() {
        Linger::On
    } else {
        Linger::Off { command: format!("loginctl enable-linger {name}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_linger_is_told_the_command() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(of(dir.path(), "ann"), Linger::Off { command: "loginctl enable-linger ann".into() });
        std::fs::write(dir.path().join("ann"), "").unwrap();
        assert_eq!(of(dir.path(), "ann"), Linger::On);
    }
}
