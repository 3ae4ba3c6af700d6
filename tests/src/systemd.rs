//! A real systemd, with a user manager, in namespaces of its own: `tests/systemd/boot.sh`.
//!
//! The instance under test lives inside, as a user of its own; the test looks from outside: its
//! processes are ours to see, its socket and files are reached through the root of its pid 1, and
//! the fake model listens inside its network namespace.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Gid, Uid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space, set_thread_res_gid, set_thread_res_uid};
use serde_json::{Value, json};
use shared::link::SocketAddress;

use crate::env::{binary_path, eventually, list};
use crate::fakes::model::Model;
use crate::processes::Process;
use crate::program::{Output, Program};
use crate::wire::Wire;

/// The user inside.
const USER: u32 = 4242;

/// Where our binaries are inside.
pub const BIN: &str = "/opt/scv";

/// A systemd that has booted. Dropping it shuts it down and proves that nothing of it is left.
#[derive(Debug)]
pub struct Systemd {
    dir: tempfile::TempDir,
    init: i32,
}

impl Systemd {
    /// Boots one, with our binaries in [`BIN`].
    ///
    /// # Panics
    /// Where that needs what the machine does not have: root, cgroup2, and the packages of `tests/run`.
    #[track_caller]
    pub fn boot() -> Self {
        let dir = tempfile::Builder::new().prefix("scv-systemd-").tempdir().expect("a temporary directory");
        let up = script(dir.path(), "up", &[]);
        let output = Program::start(Command::new(&up[0]).args(&up[1..])).wait();
        output.exits(0);
        let pid = std::fs::read_to_string(dir.path().join("pid")).expect("the script writes it");
        let init = pid.trim().parse().expect("a pid");
        let booted = Self { dir, init };
        let bin = booted.path(BIN);
        std::fs::create_dir_all(&bin).expect("its root is writable for us");
        for binary in ["scv", "scvd", "scv-worker"] {
            std::fs::copy(binary_path(binary), bin.join(binary)).expect("room for our binaries");
        }
        booted
    }

    /// A path inside, as seen from here.
    pub fn path(&self, inside: impl AsRef<Path>) -> PathBuf {
        let inside = inside.as_ref();
        PathBuf::from(format!("/proc/{}/root", self.init)).join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Runs a program inside as root.
    #[track_caller]
    pub fn root(&self, command: &[&str]) -> Output {
        self.run("root", command).wait()
    }

    /// As [`root`](Self::root), without waiting for its end.
    pub fn start_root(&self, command: &[&str]) -> Program {
        self.run("root", command)
    }

    /// Runs a program inside as the user, with a session bus; our binaries are on its `PATH`.
    #[track_caller]
    pub fn user(&self, command: &[&str]) -> Output {
        self.start(command).wait()
    }

    /// As [`user`](Self::user), without waiting for its end.
    pub fn start(&self, command: &[&str]) -> Program {
        let path = format!("PATH={BIN}:/usr/local/bin:/usr/bin:/bin");
        let mut all = vec!["env", path.as_str()];
        all.extend(command);
        self.run("user", &all)
    }

    /// Runs `scv` inside as the user.
    #[track_caller]
    pub fn scv(&self, args: &[&str]) -> Output {
        let mut all = vec!["scv"];
        all.extend(args);
        self.user(&all)
    }

    /// Runs `systemctl --user` inside; what it printed.
    #[track_caller]
    pub fn systemctl(&self, args: &[&str]) -> String {
        let mut all = vec!["systemctl", "--user", "--no-pager"];
        all.extend(args);
        self.user(&all).stdout.trim_end().to_owned()
    }

    /// One property of a unit.
    #[track_caller]
    pub fn property(&self, unit: &str, name: &str) -> String {
        self.systemctl(&["show", unit, "--value", "-p", name])
    }

    fn run(&self, verb: &str, command: &[&str]) -> Program {
        let all = script(self.dir.path(), verb, command);
        Program::start(Command::new(&all[0]).args(&all[1..]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"))
    }

    /// A model that listens on the loopback of this network namespace.
    pub fn model(&self) -> Model {
        let namespace = File::open(format!("/proc/{}/ns/net", self.init)).expect("its network namespace");
        let bound = std::thread::spawn(move || {
            // This thread alone; a socket stays in the namespace where it was made.
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("we are root");
            TcpListener::bind("127.0.0.1:0").expect("a free port")
        });
        Model::serve_on(bound.join().expect("bound"))
    }

    /// The user's default home of SCV, with a provider at `base_url`.
    pub fn home(&self, base_url: &str) -> Home<'_> {
        self.home_at("/home/scvtest/.scv", base_url)
    }

    /// The home of SCV at a path of this root, as it is.
    pub fn at(&self, path: &str) -> Home<'_> {
        Home { systemd: self, path: path.to_owned() }
    }

    /// A home of SCV at a path of this root.
    pub fn home_at(&self, path: &str, base_url: &str) -> Home<'_> {
        let home = self.at(path);
        let outside = self.path(path);
        std::fs::create_dir_all(&outside).expect("a home");
        let config = format!(
            "[provider]\nactive = \"fake\"\n\n[providers.fake]\nkind = \"openai-compatible\"\nmodel = \"fake-model\"\n\
             base_url = \"{base_url}\"\napi_key = \"sk-test-0123456789abcdef\"\n"
        );
        std::fs::write(outside.join("config.toml"), config).expect("a configuration");
        self.root(&["chmod", "-R", "go=", path]).exits(0);
        self.root(&["chown", "-R", "scvtest:scvtest", path]).exits(0);
        home
    }

    /// Everything that runs inside.
    pub fn processes(&self) -> Vec<Process> {
        Process::descendants(self.init)
    }

    /// The processes inside that run one of our binaries or carry a tag of ours.
    pub fn ours(&self) -> Vec<Process> {
        let is_ours = |process: &Process| {
            process.program().is_some_and(|program| program.starts_with("scv")) || process.var("SCV_SESSION").is_some()
        };
        self.processes().into_iter().filter(|process| process.state != 'Z' && is_ours(process)).collect()
    }

    /// Those of [`ours`](Self::ours) that run `binary`.
    pub fn running(&self, binary: &str) -> Vec<Process> {
        let is = |process: &Process| process.program().as_deref() == Some(binary);
        self.ours().into_iter().filter(is).collect()
    }

    /// Waits until none of [`ours`](Self::ours) is left.
    #[track_caller]
    pub fn nothing_of_ours_is_left(&self, within: Duration) {
        eventually("nothing of ours is left", within, || self.ours().is_empty());
        let zombies: Vec<_> = self.processes().into_iter().filter(|process| process.state == 'Z').collect();
        let ours: Vec<_> = zombies.into_iter().filter(|process| process.name.starts_with("scv")).collect();
        assert!(ours.is_empty(), "zombies:\n{}", list(&ours));
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let journal = self.user(&["journalctl", "--user", "--no-pager", "-n", "200", "-o", "short-precise"]);
            eprintln!("--- the user's journal\n{}", journal.stdout);
            eprintln!("--- processes\n{}", list(&self.processes()));
        }
        let down = script(self.dir.path(), "down", &[]);
        let output = Program::start(Command::new(&down[0]).args(&down[1..])).wait();
        let clean =
            output.status.success() && output.stdout.contains("cgroup removed") && Process::of(self.init).is_none();
        assert!(clean || std::thread::panicking(), "the systemd did not go down: {output:?}");
    }
}

/// One home inside.
#[derive(Debug)]
pub struct Home<'a> {
    systemd: &'a Systemd,
    /// Its path inside.
    pub path: String,
}

impl Home<'_> {
    /// Its instance, as unit names carry it.
    pub fn instance(&self) -> String {
        use sha2::Digest as _;
        let digest = sha2::Sha256::digest(self.path.as_bytes());
        format!("{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3])
    }

    /// The name of its service.
    pub fn service(&self) -> String {
        format!("scvd-{}.service", self.instance())
    }

    /// The name of its socket unit.
    pub fn socket(&self) -> String {
        format!("scvd-{}.socket", self.instance())
    }

    /// The name of its slice.
    pub fn slice(&self) -> String {
        format!("scv-{}.slice", self.instance())
    }

    /// Runs `scv` for this home.
    #[track_caller]
    pub fn scv(&self, args: &[&str]) -> Output {
        let mut all = vec!["--scv-home", &self.path];
        all.extend(args);
        self.systemd.scv(&all)
    }

    /// A connection to its supervisor, as the user.
    pub fn connect(&self) -> std::io::Result<UnixStream> {
        let socket = self.systemd.path(&self.path).join("state/server.sock");
        let connected = std::thread::spawn(move || {
            let address = SocketAddress::of(&socket)?;
            // This thread alone; the peer sees who connects.
            let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
            set_thread_res_gid(gid, gid, gid)?;
            set_thread_res_uid(uid, uid, uid)?;
            UnixStream::connect(address.path())
        });
        connected.join().expect("a thread that connects")
    }

    /// A client that has shaken hands.
    #[track_caller]
    pub fn wire(&self, features: &[&str]) -> Wire {
        let mut wire = Wire::on(self.connect().unwrap_or_else(|error| panic!("cannot connect: {error}")));
        wire.initialize(features);
        wire
    }

    /// Starts a session in the user's directory; its id.
    #[track_caller]
    pub fn session(&self, wire: &mut Wire) -> String {
        let started = wire.ask(json!({"type": "session.start", "cwd": "/home/scvtest", "on_disconnect": "keep"}));
        assert_eq!(started["type"], "session.started", "{}", wire.report());
        wire.until_type("queue.snapshot");
        started["session_id"].as_str().expect("an id").to_owned()
    }

    /// The `status` of its supervisor.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.wire(&[]).control(&json!({"action": "status"}))
    }
}

fn script(dir: &Path, verb: &str, command: &[&str]) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/boot.sh");
    let words = ["bash", &script.to_string_lossy(), verb, &dir.to_string_lossy()].map(str::to_owned);
    words.into_iter().chain(command.iter().map(|word| (*word).to_owned())).collect()
}
