//! Our binaries in a directory of the test, to be replaced under a running supervisor.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::env::{TestEnv, binary_path};
use crate::program::{Output, Program};

/// An installation of its own for one instance.
#[derive(Debug)]
pub struct Installed<'a> {
    env: &'a TestEnv,
    dir: PathBuf,
}

impl<'a> Installed<'a> {
    /// Installs all three.
    ///
    /// # Panics
    /// Where they cannot be copied.
    #[must_use]
    pub fn of(env: &'a TestEnv) -> Self {
        let dir = env.root().canonicalize().expect("it exists").join("bin");
        fs::create_dir(&dir).expect("an empty directory");
        let installed = Self { env, dir };
        for name in ["scv", "scvd", "scv-worker"] {
            installed.put(name, &fs::read(binary_path(name)).expect("it was built"));
        }
        installed
    }

    /// Replaces a program as installers do: by another file of that name.
    ///
    /// # Panics
    /// Where it cannot be written.
    pub fn put(&self, name: &str, content: &[u8]) {
        let new = self.dir.join(format!("{name}.new"));
        fs::write(&new, content).expect("it can be written");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("it is ours");
        fs::rename(&new, self.dir.join(name)).expect("it can be replaced");
    }

    /// Puts the real program back.
    pub fn mend(&self, name: &str) {
        self.put(name, &fs::read(binary_path(name)).expect("it was built"));
    }

    /// Where a program is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Starts the guard in the foreground and with it the supervisor.
    #[track_caller]
    pub fn start_guarded(&self) {
        self.start(&["--guard", "--foreground"]);
    }

    /// Starts the supervisor in the foreground.
    #[track_caller]
    pub fn start(&self, args: &[&str]) {
        let mut command = self.env.command_at(&self.path("scvd"));
        let program = Program::start(command.arg("--scv-home").arg(self.env.layout().home()).args(args));
        let said = program.stdout_until("the line `ready`", |text| text.contains('\n'));
        assert_eq!(said, "ready\n", "--- stderr\n{}", program.stderr());
        *self.env.supervisor() = Some(program);
    }

    /// Runs `scv` to its end.
    #[track_caller]
    pub fn scv(&self, args: &[&str]) -> Output {
        Program::start(self.env.command_at(&self.path("scv")).args(args)).wait()
    }

    /// Where it is installed.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}
