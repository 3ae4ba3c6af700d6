//! A worker for scvd's tests: it speaks the link, takes clients, and does what they say.
//!
//! Files in the home change what it does, each holding how many workers do so: `fake-deaf` (no
//! hello), `fake-silent` (answers no hand-over), `fake-refuse` (refuses each), `fake-crash` (dies
//! when it gets a session), `fake-old` (is of the release before), `fake-ancient` (to one supervisor, of
//! a release that is too old), `fake-stubborn` (does not end when told to).

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use shared::layout::Layout;
use shared::link::{
    HandOver, LinkReader, LinkWriter, OLDEST_VERSION, SocketAddress, ToSupervisor, ToWorker, VERSION, split,
};
use shared::process::{self, Identity};
use shared::protocol::SessionId;
use shared::protocol::control::{SessionEntry, SessionState};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name).expect("an argument is missing");
        arguments[at + 1].clone()
    };
    let layout = Layout::open(Path::new(&after("--scv-home"))).expect("no home");
    let bundle = layout.worker(&after("--worker"));
    process::become_subreaper().expect("no subreaper");
    process::set_name("scv-worker");
    let address = SocketAddress::of(&bundle.socket()).expect("no bundle");
    let listener = UnixListener::bind(address.path()).expect("no socket");
    let identity = serde_json::to_vec(&Identity::current().expect("no /proc")).expect("no JSON");
    shared::fs::replace(&bundle.worker(), &identity, shared::fs::Sync::Lazy).expect("no worker.json");
    std::io::stdout().write_all(b"ready\n").expect("nobody reads");
    nix::unistd::dup2_stdout(std::fs::File::open("/dev/null").expect("no null")).expect("no stdout");

    let (say, mut said) = mpsc::channel(16);
    let speaks = if spend(&layout, "old") {
        (OLDEST_VERSION, "0.0.9".to_owned())
    } else {
        (VERSION, shared::RELEASE.to_owned())
    };
    let mut worker = Worker { speaks, stubborn: spend(&layout, "stubborn"), layout, session: None, say: Arc::new(say) };
    let mut next = None;
    loop {
        let stream = match next.take() {
            Some(stream) => stream,
            None => listener.accept().await.expect("no supervisor").0,
        };
        if spend(&worker.layout, "deaf") {
            // Open, and nobody there.
            std::mem::forget(stream);
        } else {
            let (reader, writer) = split(stream);
            // The newest supervisor is the one that counts.
            tokio::select! {
                () = worker.serve(reader, writer, &mut said) => {}
                accepted = listener.accept() => next = Some(accepted.expect("no supervisor").0),
            }
        }
    }
}

/// Whether this worker is one of those that `fake-<what>` still asks for.
fn spend(layout: &Layout, what: &str) -> bool {
    let path = layout.home().join(format!("fake-{what}"));
    let left: u32 = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    if left > 0 {
        std::fs::write(&path, (left - 1).to_string()).expect("cannot count down");
    }
    left > 0
}

struct Worker {
    /// Its version of the link, and its release.
    speaks: (u32, String),
    layout: Layout,
    session: Option<SessionId>,
    stubborn: bool,
    say: Arc<mpsc::Sender<ToSupervisor>>,
}

impl Worker {
    /// Speaks with a supervisor until either is done with the other; one that does not want us may
    /// close the link before we have said all.
    async fn serve(&mut self, reader: LinkReader, writer: LinkWriter, said: &mut mpsc::Receiver<ToSupervisor>) {
        // As with a real worker: the next supervisor is waited for.
        let _ = self.speak(reader, writer, said).await;
    }

    async fn speak(
        &mut self,
        mut reader: LinkReader,
        mut writer: LinkWriter,
        said: &mut mpsc::Receiver<ToSupervisor>,
    ) -> std::io::Result<()> {
        let pid = std::process::id().cast_signed();
        let ancient = spend(&self.layout, "ancient").then(|| (0, "0.0.1".to_owned()));
        let (link_version, release) = ancient.unwrap_or_else(|| self.speaks.clone());
        let hello = ToSupervisor::Hello { link_version, release, pid, session_id: self.session };
        writer.send(&hello).await?;
        if self.session.is_some() {
            writer.send(&self.state()).await?;
        }
        loop {
            let (message, hand_over) = tokio::select! {
                Some(message) = said.recv() => {
                    writer.send(&message).await?;
                    continue;
                }
                read = reader.next(ToWorker::raw) => match read {
                    Ok(Some(read)) => read,
                    Ok(None) | Err(_) => return Ok(()),
                },
            };
            if let Some(answer) = self.take(&message, hand_over) {
                writer.send(&answer).await?;
                if matches!(answer, ToSupervisor::Taken { .. }) {
                    writer.send(&self.state()).await?;
                }
            }
        }
    }

    fn take(&mut self, message: &ToWorker, hand_over: Option<HandOver>) -> Option<ToSupervisor> {
        match *message {
            ToWorker::Client { id, session_id, .. } => {
                let hand_over = hand_over.expect("no descriptor");
                if spend(&self.layout, "silent") {
                    return None;
                }
                if spend(&self.layout, "refuse") {
                    return Some(ToSupervisor::Refused { id, reason: "as I was told".into(), code: None });
                }
                self.begin(session_id);
                tokio::spawn(converse(hand_over, session_id, self.layout.instance(), self.say.clone()));
                Some(ToSupervisor::Taken { id })
            }
            ToWorker::Resume { session_id } => {
                self.begin(session_id);
                Some(self.state())
            }
            ToWorker::MayLeave {} => std::process::exit(0),
            ToWorker::End { .. } if !self.stubborn => std::process::exit(0),
            _ => None,
        }
    }

    fn begin(&mut self, session: SessionId) {
        self.session = Some(session);
        shared::fs::private_dir(self.layout.session(session).path()).expect("no directory");
        if spend(&self.layout, "crash") {
            std::process::exit(7);
        }
    }

    fn state(&self) -> ToSupervisor {
        let id = self.session.map(|id| id.to_string()).unwrap_or_default();
        ToSupervisor::State {
            entry: Box::new(SessionEntry { id, state: SessionState::Idle, ..SessionEntry::default() }),
        }
    }
}

/// Says `pid <pid> <session> <bytes of the hand-over>`, then does what each line says.
async fn converse(hand_over: HandOver, session: SessionId, instance: String, say: Arc<mpsc::Sender<ToSupervisor>>) {
    let stream = std::os::unix::net::UnixStream::from(hand_over.socket);
    let stream = UnixStream::from_std(stream).expect("not non-blocking");
    let (read, mut write) = stream.into_split();
    let first = format!("pid {} {session} {}\n", std::process::id(), hand_over.bytes.len());
    let _ = write.write_all(first.as_bytes()).await;
    let mut lines = BufReader::new(hand_over.bytes.as_slice().chain(read)).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match line.as_str() {
            "spawn" => {
                let pids = spawn(&format!("{instance}/{session}/bash-000001"));
                let _ = write.write_all(format!("spawned {pids}\n").as_bytes()).await;
            }
            "leave" => {
                let _ = say.send(ToSupervisor::Leaving { state: SessionState::Hibernated }).await;
            }
            "fail" => std::process::exit(9),
            _ => {
                let _ = write.write_all(format!("heard {}\n", line.len()).as_bytes()).await;
            }
        }
    }
}

/// A shell that waits, a child of it in a session of its own, and an orphan; their pids.
fn spawn(mark: &str) -> String {
    let script = "echo $$; setsid sleep 600 & echo $!; (sleep 600 & echo $!); wait";
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("SCV_PARENT", mark).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.stdout(Stdio::piped()).spawn().expect("no sh").stdout.take().expect("no pipe");
    let lines = std::io::BufRead::lines(std::io::BufReader::new(output));
    lines.take(3).map(|line| line.expect("no pids")).collect::<Vec<_>>().join(" ")
}
