//! An instance of this machine, kept up by its guard; its home is a small disk of its own.

use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use scv_tests::TestEnv;
use scv_tests::fakes::model::Model;
use scv_tests::processes::{self, Process};
use scv_tests::program::Program;

use super::{DISK, World};

/// Set in a driver that has mounts of its own.
const ALONE: &str = "CHAOS_ALONE";

/// See the module.
pub(crate) struct Guarded {
    env: TestEnv,
}

impl Guarded {
    /// Goes on in a mount namespace of its own, where it may mount a disk that nobody else sees.
    pub(crate) fn alone() {
        if std::env::var_os(ALONE).is_some() {
            return;
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        let this = std::env::current_exe().unwrap();
        let error = command.arg("--").arg(this).args(std::env::args_os().skip(1)).env(ALONE, "1").exec();
        panic!("cannot run unshare: {error}");
    }

    /// A home, and nothing that runs.
    pub(crate) fn new(model: &Model, more: &str) -> Self {
        let env = TestEnv::new();
        let home = env.layout().home();
        let options = format!("size={DISK},mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "chaos"]).arg(home).status();
        assert!(mounted.is_ok_and(|status| status.success()), "the home's disk could not be mounted");
        env.configure(&model.url(), more);
        Self { env }
    }
}

impl World for Guarded {
    fn connect(&self) -> io::Result<UnixStream> {
        self.env.connect()
    }

    fn scv(&self, cwd: &Path, args: &[&str]) -> Program {
        Program::start(self.env.command("scv").current_dir(cwd).args(args))
    }

    fn processes(&self) -> Vec<Process> {
        // Whatever lost its parent came up to this driver; its programs are waited for by handle.
        let own = std::process::id().cast_signed();
        let below = Process::descendants(own);
        let ours: Vec<i32> = below.iter().filter(|p| !is_of_an_instance(p)).map(|p| p.pid).collect();
        if below.iter().any(|process| process.state == 'Z' && process.ppid == own && is_of_an_instance(process)) {
            processes::reap_adopted(&ours);
        }
        below.into_iter().filter(|process| process.program().as_deref() != Some("mount")).collect()
    }

    fn work(&self) -> PathBuf {
        self.env.work()
    }

    fn home(&self) -> PathBuf {
        self.env.layout().home().to_owned()
    }

    fn outside(&self, inside: &Path) -> PathBuf {
        inside.to_owned()
    }

    fn make_dir(&self, inside: &Path) {
        std::fs::create_dir_all(inside).unwrap();
    }

    fn guard(&self) -> Option<Process> {
        self.census().guards.pop()
    }

    fn fill_disk(&self, full: bool) -> bool {
        let home = self.env.layout().home();
        let size = if full { used(home) } else { DISK.to_owned() };
        let remounted = Command::new("mount").args(["-o", &format!("remount,size={size}")]).arg(home).output();
        remounted.is_ok_and(|output| output.status.success())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.env.layout().log()).unwrap_or_default()
    }
}

/// What is on the disk of `home` now, as a size for its mount.
pub(super) fn used(home: &Path) -> String {
    let disk = rustix::fs::statvfs(home).unwrap();
    ((disk.f_blocks - disk.f_bfree) * disk.f_frsize).to_string()
}

/// Whether it is none of the programs that this driver itself starts.
fn is_of_an_instance(process: &Process) -> bool {
    !["scv", "mount", "cp"].contains(&&*process.name)
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // Lazily: its last process may be on its way out.
        let _ = Command::new("umount").arg("--lazy").arg(self.env.layout().home()).status();
    }
}
