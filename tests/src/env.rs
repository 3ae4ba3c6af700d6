//! An instance of its own: a home in a temporary directory, its supervisor, and at the end the
//! proof that no process is left.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shared::layout::Layout;
use shared::link::SocketAddress;

use crate::processes::{self, Process};
use crate::program::{Output, Program};

/// Instances of this test process that are not finished.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// How long everything may take to end once the supervisor was told to stop: 2 s of grace for
/// children, 2 s for clients that do not read, and the scheduling of a loaded machine.
const STOPPED_WITHIN: Duration = Duration::from_secs(8);

/// One instance. Dropping it stops it and fails the test if a process is left.
#[derive(Debug)]
pub struct TestEnv {
    root: tempfile::TempDir,
    layout: Layout,
    vars: BTreeMap<String, String>,
    /// What runs in the foreground: the supervisor or its guard.
    supervisor: Mutex<Option<Program>>,
}

impl TestEnv {
    /// A home without configuration; nothing runs.
    pub fn new() -> Self {
        processes::become_subreaper();
        LIVE.fetch_add(1, Ordering::SeqCst);
        let root = tempfile::Builder::new().prefix("scv-").tempdir().expect("a temporary directory");
        let path = root.path().canonicalize().expect("it exists");
        for dir in ["home", "run", "work", "tmp"] {
            fs::create_dir(path.join(dir)).expect("an empty directory");
        }
        let layout = Layout::open(&path.join("scv")).expect("a home");
        let mut vars = BTreeMap::new();
        let mut set = |name: &str, value: &OsStr| vars.insert(name.to_owned(), value.to_string_lossy().into_owned());
        set("HOME", path.join("home").as_os_str());
        set("TMPDIR", path.join("tmp").as_os_str());
        // No test installs a unit in the user manager of whoever runs it.
        set("XDG_RUNTIME_DIR", path.join("run").as_os_str());
        set("SCV_HOME", layout.home().as_os_str());
        set("PATH", OsStr::new("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"));
        set("LANG", OsStr::new("C.UTF-8"));
        set("USER", OsStr::new("tester"));
        set("SHELL", OsStr::new("/bin/bash"));
        // Marks what this instance starts for the last look; means nothing to SCV.
        set("TEST_ENV_ROOT", path.as_os_str());
        Self { root, layout, vars, supervisor: Mutex::new(None) }
    }

    /// As [`new`](Self::new), with a provider at `base_url`.
    pub fn with_model(base_url: &str) -> Self {
        let env = Self::new();
        env.configure(base_url, "");
        env
    }

    /// Sets a variable of every program that is started from now on.
    #[must_use]
    pub fn var(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.vars.insert(name.to_owned(), value.as_ref().to_string_lossy().into_owned());
        self
    }

    /// Puts a directory in front of the `PATH`.
    #[must_use]
    pub fn path(self, dir: &Path) -> Self {
        let path = format!("{}:{}", dir.display(), self.vars["PATH"]);
        self.var("PATH", path)
    }

    /// Writes a configuration with the provider `fake` at `base_url`, and `more` after it. `more`
    /// begins with keys of `[providers.fake]`, or with a table.
    pub fn configure(&self, base_url: &str, more: &str) {
        self.write_config(&format!(
            "[provider]\nactive = \"fake\"\n\n[providers.fake]\nkind = \"openai-compatible\"\nwire_api = \"responses\"\n\
             model = \"fake-model\"\nbase_url = \"{base_url}\"\napi_key = \"sk-test-0123456789abcdef\"\n{more}\n"
        ));
    }

    /// Writes `config.toml` as it stands.
    pub fn write_config(&self, text: &str) {
        let path = self.layout.config();
        fs::write(&path, text).expect("config.toml is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    }

    /// Where everything of this instance lies.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The paths of its home.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The workspace of its sessions.
    pub fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    /// Writes a file of the workspace.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().join(name);
        fs::create_dir_all(path.parent().expect("below the workspace")).expect("a directory");
        fs::write(&path, content).expect("a file of the workspace");
        path
    }

    /// One of our binaries with this instance's environment, in the workspace.
    pub fn command(&self, binary: &str) -> Command {
        self.command_at(&binary_path(binary))
    }

    /// Any program with this instance's environment, in the workspace.
    pub fn command_at(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(&self.vars).current_dir(self.work());
        command
    }

    /// Runs `scv` to its end.
    #[track_caller]
    pub fn scv(&self, args: &[&str]) -> Output {
        self.scv_start(args).wait()
    }

    /// Starts `scv`.
    pub fn scv_start(&self, args: &[&str]) -> Program {
        Program::start(self.command("scv").args(args))
    }

    /// Starts the supervisor in the foreground and waits until it is ready.
    #[track_caller]
    pub fn start(&self) -> &Self {
        self.start_supervisor(&[])
    }

    /// Starts the guard in the foreground, and with it the supervisor.
    #[track_caller]
    pub fn start_guarded(&self) -> &Self {
        self.start_supervisor(&["--guard", "--foreground"])
    }

    #[track_caller]
    fn start_supervisor(&self, args: &[&str]) -> &Self {
        let program = self.supervise(args);
        let said = program.stdout_until("the line `ready`", |text| text.contains('\n'));
        assert_eq!(said, "ready\n", "--- stderr\n{}", program.stderr());
        *self.supervisor() = Some(program);
        self
    }

    /// Starts a supervisor of this home without waiting for anything.
    pub fn supervise(&self, args: &[&str]) -> Program {
        Program::start(self.command("scvd").arg("--scv-home").arg(self.layout.home()).args(args))
    }

    /// The supervisor or guard that [`start`](Self::start) started.
    pub fn supervisor(&self) -> MutexGuard<'_, Option<Program>> {
        self.supervisor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of the supervisor that [`start`](Self::start) started.
    #[track_caller]
    pub fn supervisor_output(&self) -> Output {
        self.supervisor().take().expect("a supervisor was started").wait()
    }

    /// A connection to the supervisor's socket, at a path of any length.
    pub fn connect(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect(SocketAddress::of(&self.layout.socket())?.path())
    }

    /// Everything of this instance that lives, without zombies.
    pub fn processes(&self) -> Vec<Process> {
        self.all().into_iter().filter(|process| process.state != 'Z').collect()
    }

    /// Zombies that a supervisor or worker of this instance left.
    pub fn zombies(&self) -> Vec<Process> {
        let own = std::process::id().cast_signed();
        self.all().into_iter().filter(|process| process.state == 'Z' && process.ppid != own).collect()
    }

    fn all(&self) -> Vec<Process> {
        let below = Process::descendants(std::process::id().cast_signed());
        let alone = processes::process_per_test() && LIVE.load(Ordering::SeqCst) == 1;
        if alone { below } else { processes::marked(below, self.root.path()) }
    }

    /// The processes whose executable is that one of our binaries; without the guard.
    pub fn running(&self, binary: &str) -> Vec<Process> {
        let is = |process: &Process| {
            process.program().is_some_and(|program| program == binary)
                && !process.args.iter().any(|arg| arg == "--guard")
        };
        self.processes().into_iter().filter(is).collect()
    }

    /// What runs that is none of our binaries: the tools' and agents' processes.
    pub fn children(&self) -> Vec<Process> {
        let ours = ["scv", "scvd", "scv-worker"];
        // One that is exiting has no executable any more, and still its name.
        let foreign = |process: &Process| {
            !process.program().map_or(ours.contains(&&*process.name), |program| ours.contains(&&*program))
        };
        self.processes().into_iter().filter(foreign).collect()
    }

    /// Waits until `left` is empty and returns how long that took.
    #[track_caller]
    pub fn gone_within(&self, limit: Duration, left: impl Fn(&Self) -> Vec<Process>) -> Duration {
        let start = Instant::now();
        loop {
            let still = left(self);
            let Some(first) = still.first() else { return start.elapsed() };
            let rest = limit.saturating_sub(start.elapsed());
            assert!(first.gone_within(rest), "still there after {limit:?}:\n{}", list(&still));
        }
    }

    /// Stops the supervisor if one runs, and fails if a process is left. Dropping does the same.
    pub fn finish(self) {}

    /// Stops and looks; panics with what is left after `limit`, which is ended.
    fn stop_within(&self, limit: Duration) {
        let failed = std::thread::panicking();
        let left = self.stop(limit);
        let zombies = self.zombies();
        let logs = if failed || !left.is_empty() { self.logs() } else { String::new() };
        for process in &left {
            process.signal(Signal::KILL);
        }
        if failed {
            eprintln!("{logs}");
            if !left.is_empty() {
                eprintln!("also left and ended:\n{}", list(&left));
            }
            return;
        }
        assert!(left.is_empty(), "left after the supervisor was stopped, and ended now:\n{}{logs}", list(&left));
        assert!(zombies.is_empty(), "zombies:\n{}", list(&zombies));
    }

    fn stop(&self, limit: Duration) -> Vec<Process> {
        for supervisor in self.running("scvd") {
            supervisor.signal(Signal::INT);
        }
        let mut ours = Vec::new();
        if let Some(program) = &*self.supervisor() {
            ours.push(program.pid());
        }
        let start = Instant::now();
        loop {
            processes::reap_adopted(&ours);
            let left = self.processes();
            let Some(first) = left.first() else { return Vec::new() };
            if !first.gone_within(limit.saturating_sub(start.elapsed())) {
                return left;
            }
        }
    }

    /// What the instance wrote for people, for a test that failed.
    fn logs(&self) -> String {
        let mut text = String::new();
        if let Some(program) = &*self.supervisor() {
            let _ = writeln!(text, "--- the supervisor's stderr\n{}", program.stderr());
        }
        let mut logs = vec![self.layout.log()];
        for session in fs::read_dir(self.layout.sessions()).into_iter().flatten().flatten() {
            logs.extend([session.path().join("worker.log"), session.path().join("journal.jsonl")]);
        }
        for path in logs {
            if let Ok(bytes) = fs::read(&path) {
                let tail = &bytes[bytes.len().saturating_sub(16 << 10)..];
                let _ = writeln!(text, "--- {}\n{}", path.display(), String::from_utf8_lossy(tail));
            }
        }
        text
    }
}

impl Default for TestEnv {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        /// Counts this instance out, also when the last look panics.
        struct Gone;
        impl Drop for Gone {
            fn drop(&mut self) {
                LIVE.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let _gone = Gone;
        self.stop_within(STOPPED_WITHIN);
    }
}

/// Waits until `holds`; for what no event tells, such as a file that comes back.
#[track_caller]
pub fn eventually(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    start.elapsed()
}

/// One process a line.
pub fn list(processes: &[Process]) -> String {
    processes.iter().fold(String::new(), |text, process| text + &format!("  {process}\n"))
}

/// One of our binaries, of the profile that this test was built with.
pub fn binary_path(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("this executable has a path");
    let dirs = exe.ancestors().skip(1).take(2);
    let found = dirs.map(|dir| dir.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("no {name} beside {}: run `cargo build --workspace` first", exe.display()))
}

#[cfg(test)]
mod tests;
