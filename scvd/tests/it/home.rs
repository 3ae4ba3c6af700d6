//! A home of its own with a supervisor in it; nothing of it is left when the test ends.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shared::layout::Layout;
use shared::process::{Identity, Signal, tree};

/// Nothing here takes longer, on a machine that does other things as well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) struct Home {
    pub(crate) layout: Layout,
    programs: PathBuf,
    dir: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        // Beside the programs, so that they can be linked instead of copied.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let programs = dir.path().join("bin");
        std::fs::create_dir(&programs).unwrap();
        let scvd = Path::new(env!("CARGO_BIN_EXE_scvd"));
        let worker = scvd.parent().unwrap().join("examples/fake-worker");
        std::fs::hard_link(scvd, programs.join("scvd")).unwrap();
        std::fs::hard_link(worker, programs.join("scv-worker")).unwrap();
        Self { layout: Layout::open(&dir.path().join("home")).unwrap(), programs, dir }
    }

    pub(crate) fn set(&self, what: &str, workers: u32) {
        std::fs::write(self.layout.home().join(format!("fake-{what}")), workers.to_string()).unwrap();
    }

    pub(crate) fn config(&self, text: &str) {
        std::fs::write(self.layout.config(), text).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join("scvd"));
        command.arg("--scv-home").arg(self.layout.home()).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(self.log());
        command
    }

    pub(crate) fn log(&self) -> std::fs::File {
        std::fs::OpenOptions::new().append(true).create(true).open(self.dir.path().join("stderr")).unwrap()
    }

    pub(crate) fn start(&self) -> Scvd {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&self, arguments: &[&str]) -> Scvd {
        Scvd::ready(self.command(arguments))
    }

    pub(crate) fn connect(&self) -> Client {
        Client::new(UnixStream::connect(self.layout.socket()).unwrap())
    }

    /// A connection that has said `initialize`.
    pub(crate) fn client(&self) -> Client {
        let mut client = self.connect();
        client.initialize(&[]);
        client
    }

    /// A client of a new session, or of `session`; also the worker's pid and the session.
    pub(crate) fn session(&self, session: Option<&str>) -> (Client, i32, String) {
        let mut client = self.client();
        client.start(session);
        let (pid, session) = client.served();
        (client, pid, session)
    }

    pub(crate) fn status(&self) -> Value {
        self.client().control(&json!({"action": "status"}))["status"].take()
    }

    /// The status of a supervisor that may be about to start or to die.
    pub(crate) fn try_status(&self) -> Option<Value> {
        let mut client = Client::new(UnixStream::connect(self.layout.socket()).ok()?);
        let initialize =
            json!({"type": "initialize", "request_id": "i", "protocol_version": 3, "client": {"name": "t"}});
        let control = json!({"type": "daemon.control", "request_id": "c", "command": {"action": "status"}});
        client.stream.write_all(format!("{initialize}\n{control}\n").as_bytes()).ok()?;
        client.line();
        serde_json::from_str::<Value>(&client.line()).ok().map(|mut answer| answer["status"].take())
    }

    pub(crate) fn wait_for_spare(&self) -> i32 {
        let spare = |status: &Value| {
            let workers = status["workers"].as_array().cloned().unwrap_or_default();
            let spare = workers.into_iter().find(|w| w["role"] == "spare" && w["version"] != "");
            spare.and_then(|spare| spare["pid"].as_i64()).and_then(|pid| i32::try_from(pid).ok())
        };
        eventually("a spare worker", || spare(&self.status()))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Whatever the test did: what names this home in its arguments ends, with all below it.
        let mine = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&*self.layout.home().to_string_lossy())
        };
        let pids: Vec<i32> = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
            .filter(mine)
            .collect();
        for id in pids.iter().flat_map(|pid| tree(*pid)) {
            let _ = id.signal(Signal::KILL);
        }
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.dir.path().join("stderr")).unwrap_or_default());
        }
    }
}

pub(crate) struct Scvd(pub(crate) Child);

impl Scvd {
    /// Starts it and reads its line.
    pub(crate) fn ready(command: Command) -> Self {
        let (scvd, line) = Self::line(command);
        assert_eq!(line, "ready\n");
        scvd
    }

    pub(crate) fn line(mut command: Command) -> (Self, String) {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Self(child), line)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        Identity::of(self.pid()).unwrap().signal(signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        eventually("the end of scvd", || self.0.try_wait().unwrap())
    }
}

pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Client {
    pub(crate) fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        Self { stream, lines }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.say(&message.to_string());
    }

    pub(crate) fn say(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next line; empty at the end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        // Closing a connection with unread bytes resets it, which is an end as well.
        let _ = self.lines.read_line(&mut line);
        line.trim_end().to_owned()
    }

    pub(crate) fn event(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("not an event: {line:?}"))
    }

    pub(crate) fn initialize(&mut self, features: &[&str]) -> Value {
        let client = json!({"name": "test", "version": "1"});
        self.send(&json!({"type": "initialize", "request_id": "i", "protocol_version": 3, "client": client, "features": features}));
        let answer = self.event();
        assert_eq!(answer["type"], "initialized", "{answer}");
        answer
    }

    pub(crate) fn control(&mut self, command: &Value) -> Value {
        self.send(&json!({"type": "daemon.control", "request_id": "c", "command": command}));
        self.event()
    }

    pub(crate) fn start(&mut self, session: Option<&str>) {
        self.send(&json!({"type": "session.start", "request_id": "s", "cwd": "/", "session_id": session}));
    }

    pub(crate) fn attach(&mut self, session: &str) {
        self.send(&json!({"type": "session.attach", "request_id": "a", "session_id": session}));
    }

    /// The worker's first line.
    pub(crate) fn served(&mut self) -> (i32, String) {
        let line = self.line();
        let words: Vec<&str> = line.split(' ').collect();
        let [what, pid, session, _] = words[..] else { panic!("not served: {line:?}") };
        assert_eq!(what, "pid");
        // The message that named the session came with the connection.
        assert!(self.line().starts_with("heard "));
        (pid.parse().unwrap(), session.to_owned())
    }

    /// Has the worker start processes that get out of its way; who they are.
    pub(crate) fn spawn(&mut self) -> Vec<Identity> {
        self.say("spawn");
        let line = self.line();
        let pids: Vec<i32> = line.split(' ').skip(1).map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(pids.len(), 3, "{line}");
        pids.into_iter().map(|pid| Identity::of(pid).unwrap()).collect()
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        !matches!(self.lines.read_to_end(&mut rest), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

/// Looks until there is something.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn gone(ids: &[Identity]) {
    for id in ids {
        eventually(&format!("the end of process {}", id.pid), || (!id.is_alive()).then_some(()));
    }
}

pub(crate) fn kill(pid: i32) {
    Identity::of(pid).unwrap().signal(Signal::KILL).unwrap();
}
