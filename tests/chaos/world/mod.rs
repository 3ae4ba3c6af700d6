//! Where an instance lives, and how it is started, reached and looked at: under the guard, or as a
//! service of a real systemd. Everything else of this driver is the same for both.

mod guarded;
mod service;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use scv_tests::processes::Process;
use scv_tests::program::{Output, Program};

pub(crate) use guarded::Guarded;
pub(crate) use service::Service;

/// The home's disk; small enough to be filled, large enough for what a round keeps.
const DISK: &str = "256m";

/// An instance and its surroundings.
pub(crate) trait World: Send + Sync {
    /// A connection to the supervisor's socket.
    fn connect(&self) -> io::Result<UnixStream>;
    /// `scv`, with arguments; it runs in `cwd`, a path as the instance sees it.
    fn scv(&self, cwd: &Path, args: &[&str]) -> Program;
    /// Everything of the instance that there is, zombies included.
    fn processes(&self) -> Vec<Process>;
    /// The workspaces, as the instance sees them.
    fn work(&self) -> PathBuf;
    /// The home, as the instance sees it.
    fn home(&self) -> PathBuf;
    /// A path of the instance as seen from here.
    fn outside(&self, inside: &Path) -> PathBuf;
    /// Makes a directory of the instance, a path as it sees it.
    fn make_dir(&self, inside: &Path);
    /// A process that the supervisor and the guard have above them and that a user may lose.
    fn guard(&self) -> Option<Process>;
    /// Fills the home's disk up, or gives the space back; whether that was done.
    fn fill_disk(&self, full: bool) -> bool;
    /// What the supervisors wrote for people.
    fn log(&self) -> String;

    /// `scv start`, to its end: nothing if a supervisor runs.
    fn start(&self) -> Output {
        self.scv(&self.work(), &["start"]).wait()
    }

    /// `scv stop`, to its end.
    fn stop(&self) -> Output {
        self.scv(&self.work(), &["stop"]).wait()
    }

    /// The instance's `config.toml`, sessions and records, as seen from here.
    fn state(&self) -> PathBuf {
        self.outside(&self.home()).join("state")
    }

    /// Everybody, by what they are.
    fn census(&self) -> Census {
        Census::of(self.processes())
    }
}

/// Who there is.
#[derive(Debug, Default)]
pub(crate) struct Census {
    pub supervisors: Vec<Process>,
    pub guards: Vec<Process>,
    pub workers: Vec<Process>,
    /// `scv`, on behalf of a user.
    pub commands: Vec<Process>,
    /// Agents' and tools' processes.
    pub runs: Vec<Process>,
    /// Those that a process of ours left lying.
    pub zombies: Vec<Process>,
}

impl Census {
    fn of(processes: Vec<Process>) -> Self {
        let own = std::process::id().cast_signed();
        let mut census = Self::default();
        for process in processes {
            let has = |flag: &str| process.args.iter().any(|arg| arg == flag);
            let place = match process.program().as_deref() {
                // What came up to this driver is for it to collect.
                _ if process.state == 'Z' && process.ppid == own => continue,
                _ if process.state == 'Z' => &mut census.zombies,
                // One that is exiting has no executable any more.
                None => continue,
                Some("scvd") if has("--guard") => &mut census.guards,
                Some("scvd") => &mut census.supervisors,
                Some("scv-worker") if has("--worker") => &mut census.workers,
                Some("scv") => &mut census.commands,
                Some(_) => &mut census.runs,
            };
            place.push(process);
        }
        census
    }

    /// All that live.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Process> {
        let Self { supervisors, guards, workers, commands, runs, zombies: _ } = self;
        [supervisors, guards, workers, commands, runs].into_iter().flatten()
    }
}
