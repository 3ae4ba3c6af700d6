//! The program of workers, opened once, so that a worker is of its supervisor's version even
//! after the file was replaced.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use shared::layout::Layout;
use tokio::process::Command;

const NAME: &str = "scv-worker";

/// What a service manager tells us alone (its notify socket, its descriptors, its watchdog):
/// a tool that is a service of some kind must not speak in our name.
const OF_THE_SERVICE_MANAGER: [&str; 9] = [
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "SYSTEMD_EXEC_PID",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// An executable file.
#[derive(Debug)]
pub(crate) struct Program {
    file: File,
    path: PathBuf,
}

impl Program {
    /// Finds `scv-worker`: beside this program, in `libexec/scv`, then on `PATH`.
    pub(crate) fn find() -> io::Result<Self> {
        let own = std::env::current_exe()?;
        let found = places(&own, std::env::var_os("PATH").as_deref()).into_iter().find(|path| path.is_file());
        let path = found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it is in none of these places"))?;
        let flags = rustix::fs::OFlags::PATH;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(&path)?;
        Ok(Self { file, path })
    }

    /// Where it was found, for people.
    pub(super) fn path(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    /// A worker with bundle `id`, in a process group of its own. It gives `nofile` back as the
    /// soft limit on files to what it starts.
    pub(super) fn command(&self, layout: &Layout, id: &str, nofile: Option<u64>) -> Command {
        let mut command = Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        command.arg0(NAME).arg("--scv-home").arg(layout.home()).args(["--worker", id]).process_group(0);
        for variable in OF_THE_SERVICE_MANAGER {
            command.env_remove(variable);
        }
        if let Some(nofile) = nofile {
            command.arg("--nofile").arg(nofile.to_string());
        }
        command
    }
}

fn places(own: &Path, path: Option<&OsStr>) -> Vec<PathBuf> {
    let dir = own.parent().unwrap_or(Path::new("/"));
    let mut places = vec![dir.join(NAME), dir.join("../libexec/scv").join(NAME)];
    places.extend(std::env::split_paths(path.unwrap_or_default()).map(|dir| dir.join(NAME)));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_beside_us_comes_first() {
        let found = places(Path::new("/opt/scv/bin/scvd"), Some(OsStr::new("/usr/bin:/bin")));
        let expected = [
            "/opt/scv/bin/scv-worker",
            "/opt/scv/bin/../libexec/scv/scv-worker",
            "/usr/bin/scv-worker",
            "/bin/scv-worker",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
