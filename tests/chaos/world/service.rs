//! An instance as a service of a real systemd, which runs in namespaces of its own.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use scv_tests::fakes::model::Model;
use scv_tests::processes::Process;
use scv_tests::program::Program;
use scv_tests::systemd::{Home, Systemd};

use super::{DISK, World, guarded};

/// The user's home of SCV; a small disk of its own.
const HOME: &str = "/home/scvtest/.scv";

/// See the module.
pub(crate) struct Service {
    systemd: Systemd,
}

impl Service {
    /// Boots, and configures a home; nothing of SCV runs.
    pub(crate) fn new(more: &str) -> (Self, Model) {
        let systemd = Systemd::boot();
        let model = systemd.model();
        systemd.root(&["mkdir", HOME]).exits(0);
        let options = format!("size={DISK},mode=0700,uid=4242,gid=4242");
        systemd.root(&["mount", "-t", "tmpfs", "-o", &options, "chaos", HOME]).exits(0);
        systemd.home(&model.url());
        let config = systemd.path(HOME).join("config.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("{text}wire_api = \"responses\"\n{more}")).unwrap();
        (Self { systemd }, model)
    }

    fn home_of_scv(&self) -> Home<'_> {
        self.systemd.at(HOME)
    }
}

impl World for Service {
    fn connect(&self) -> io::Result<UnixStream> {
        self.home_of_scv().connect()
    }

    fn scv(&self, cwd: &Path, args: &[&str]) -> Program {
        let cwd = cwd.to_string_lossy();
        let mut command = vec!["env", "-C", &cwd, "scv"];
        command.extend(args);
        self.systemd.start(&command)
    }

    fn processes(&self) -> Vec<Process> {
        let instance = self.home_of_scv().instance();
        let is_ours = |process: &Process| {
            process.program().is_some_and(|program| program.starts_with("scv"))
                || process.name.starts_with("scv")
                || process.cgroup().contains(&instance)
                || process.rttime().is_some()
        };
        self.systemd.processes().into_iter().filter(is_ours).collect()
    }

    fn work(&self) -> PathBuf {
        "/home/scvtest".into()
    }

    fn home(&self) -> PathBuf {
        HOME.into()
    }

    fn outside(&self, inside: &Path) -> PathBuf {
        self.systemd.path(inside)
    }

    fn make_dir(&self, inside: &Path) {
        self.systemd.user(&["mkdir", "-p", &inside.to_string_lossy()]).exits(0);
    }

    fn guard(&self) -> Option<Process> {
        None
    }

    fn fill_disk(&self, full: bool) -> bool {
        let size = if full { guarded::used(&self.systemd.path(HOME)) } else { DISK.to_owned() };
        let mount = self.systemd.root(&["mount", "-o", &format!("remount,size={size}"), HOME]);
        mount.status.success()
    }

    fn log(&self) -> String {
        self.systemd.user(&["journalctl", "--user", "--no-pager", "-o", "short-precise"]).stdout
    }
}
