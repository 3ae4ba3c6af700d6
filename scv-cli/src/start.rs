//! Connects to this home's supervisor, and starts one where that is allowed.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use shared::client::{Client, ClientError};
use shared::fs;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::binaries;
use crate::context::Context;
use crate::error::{CliError, Kind};
use crate::output;
use crate::service::Service;

/// A start adopts the workers of the last supervisor and gives each 2 s.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// The other one that holds the lock is on its way up.
const OTHER_WITHIN: Duration = Duration::from_secs(10);

/// What was started and did not come up gets this long to end itself.
const GIVE_UP_GRACE: Duration = Duration::from_secs(3);

/// `scvd`: another one holds the lock.
const EXIT_LOCKED: i32 = 3;

/// Variables that a supervisor gets. Sessions get the environment of their client, and nobody
/// gets the keys of whichever shell happened to start the supervisor.
const PASSED: [&str; 18] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "RUST_BACKTRACE",
    "SCV_LOG",
    "SHELL",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
];

/// How long a supervisor stays that is started in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stays {
    /// Until there was nothing to do for `supervisor.idle_exit_seconds`: a command needed one.
    WhileNeeded,
    /// Until it is stopped: somebody asked for it.
    UntilStopped,
}

/// Whether a supervisor may be started for a command that only needs one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MayStart {
    Yes,
    InsideARun,
    Stopped,
}

fn may_start(inside_a_run: bool, stopped: bool) -> MayStart {
    match (inside_a_run, stopped) {
        (true, _) => MayStart::InsideARun,
        (false, true) => MayStart::Stopped,
        (false, false) => MayStart::Yes,
    }
}

/// Connects; starts a supervisor in the background if none runs and none was stopped on purpose.
pub(crate) async fn connect(context: &Context, name: &str, features: &[&str]) -> Result<Client, CliError> {
    match greet(context, name, features).await {
        Err(ClientError::NotRunning { home }) => {
            let none = || CliError::failed(format!("no supervisor runs for {}", home.display()));
            match may_start(context.is_inside_a_run(), context.layout.stopped().exists()) {
                MayStart::InsideARun => Err(none().hint("none is started from inside a session of SCV")),
                MayStart::Stopped => Err(none().hint("it was stopped on purpose; `scv start` starts it again")),
                MayStart::Yes => match Service::reach(context).filter(Service::is_installed) {
                    Some(service) => {
                        service.start_again(&context.layout)?;
                        told(context, greet(context, name, features).await)
                    }
                    None => start(context, None, Stays::WhileNeeded, name, features).await,
                },
            }
        }
        other => told(context, other),
    }
}

/// Shakes hands. A supervisor that dies or leaves meanwhile has a successor in a moment.
async fn greet(context: &Context, name: &str, features: &[&str]) -> Result<Client, ClientError> {
    const TRIES: u32 = 5;
    for wait in (1..TRIES).map(|tries| Duration::from_millis(20) * tries * tries) {
        match Client::connect(&context.layout, name, features).await {
            Err(ClientError::Lost | ClientError::Broken(_)) => sleep(wait).await,
            other => return other,
        }
    }
    Client::connect(&context.layout, name, features).await
}

/// Starts a supervisor in the background and connects to it.
pub(crate) async fn start(
    context: &Context,
    cwd: Option<&Path>,
    stays: Stays,
    name: &str,
    features: &[&str],
) -> Result<Client, CliError> {
    let mut guard = spawn_guard(context, cwd, stays)?;
    let Ok(line) = timeout(READY_WITHIN, first_line(&mut guard)).await else {
        give_up(&mut guard).await;
        let within = READY_WITHIN.as_secs();
        return Err(not_started(context, &format!("it was not ready within {within} s"), Kind::Failed));
    };
    let held_by_another = !is_ready(context, &mut guard, line.as_deref()).await?;
    let deadline = Instant::now() + if held_by_another { OTHER_WITHIN } else { Duration::from_secs(1) };
    loop {
        match Client::connect(&context.layout, name, features).await {
            Err(ClientError::NotRunning { .. }) if Instant::now() < deadline => sleep(Duration::from_millis(20)).await,
            Err(ClientError::NotRunning { .. }) if held_by_another => {
                return Err(not_at_its_socket(context, line.as_deref()));
            }
            other => return told(context, other),
        }
    }
}

fn told(context: &Context, result: Result<Client, ClientError>) -> Result<Client, CliError> {
    let client = result?;
    if context.verbose {
        let server = client.server();
        eprintln!("connected to {} {} in {}", server.name, server.version, context.layout.home().display());
    }
    let theirs = &client.server().version;
    if theirs != shared::RELEASE {
        let ours = shared::RELEASE;
        output::warn(
            context,
            &format!("this is scv {ours}, and scvd {theirs} runs; `scv restart` changes to the installed one"),
        );
    }
    Ok(client)
}

/// Ready (`true`), or held by another one (`false`), or an error.
async fn is_ready(context: &Context, guard: &mut Child, line: Option<&str>) -> Result<bool, CliError> {
    if line == Some("ready") {
        return Ok(true);
    }
    let status = timeout(GIVE_UP_GRACE, guard.wait()).await;
    let code = status.ok().and_then(Result::ok).and_then(|status| status.code());
    if code == Some(EXIT_LOCKED) {
        return Ok(false);
    }
    let kind = if code == Some(2) { Kind::Usage } else { Kind::Failed };
    give_up(guard).await;
    match line.and_then(|line| line.strip_prefix("error: ")) {
        Some(sentence) => Err(not_started(context, sentence, kind)),
        None => Err(not_started(context, "it ended before it was ready", kind)),
    }
}

/// Its socket was removed or replaced; `line` is what the one said that did not get the lock.
fn not_at_its_socket(context: &Context, line: Option<&str>) -> CliError {
    let socket = context.layout.socket();
    let held = line.and_then(|line| line.strip_prefix("error: ")).unwrap_or("another scvd serves this home");
    CliError::failed(format!("{held}, and does not listen on {}", socket.display())).hint(
        "if something is in the way there, move it: the supervisor makes its socket again within a minute; \
         or end it with `kill -INT` and run `scv start`",
    )
}

fn not_started(context: &Context, why: &str, kind: Kind) -> CliError {
    let error = CliError::failed(format!("cannot start the supervisor: {why}"));
    CliError { kind, ..error }.hint(format!("its log is {}", context.layout.log().display()))
}

/// The line by which a supervisor says that it is up or why not; none if it says nothing.
async fn first_line(guard: &mut Child) -> Option<String> {
    const MAX_LINE_BYTES: u64 = 4 << 10;
    let mut line = String::new();
    BufReader::new(guard.stdout.take()?.take(MAX_LINE_BYTES)).read_line(&mut line).await.ok()?;
    Some(line.trim_end().to_owned()).filter(|line| !line.is_empty())
}

/// Leaves none rather than half a supervisor.
async fn give_up(guard: &mut Child) {
    use rustix::process::{Pid, Signal, kill_process};
    // A child that was not waited for keeps its pid: it cannot be somebody else's.
    let Some(pid) = guard.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) else { return };
    let _ = kill_process(pid, Signal::INT);
    if timeout(GIVE_UP_GRACE, guard.wait()).await.is_err() {
        let _ = guard.kill().await;
    }
}

fn spawn_guard(context: &Context, cwd: Option<&Path>, stays: Stays) -> Result<Child, CliError> {
    let scvd = binaries::find("scvd", context)?;
    // Sooner told by us than by a supervisor that cannot start any session.
    binaries::find("scv-worker", context)?;
    let cannot = |what: String, error| CliError::failed(format!("cannot {what} for the supervisor")).because(error);
    let state = context.layout.state();
    fs::private_dir(&state).map_err(|error| cannot(format!("make {}", state.display()), error))?;
    let log = context.layout.log();
    let stderr = open_log(&log).map_err(|error| cannot(format!("open the log {}", log.display()), error))?;
    Command::new(scvd)
        .arg("--scv-home")
        .arg(context.layout.home())
        .arg("--guard")
        .args((stays == Stays::WhileNeeded).then_some("--on-demand"))
        .env_clear()
        .envs(context.env.iter().filter(|(name, _)| PASSED.contains(&name.as_str())))
        .current_dir(cwd.unwrap_or(Path::new("/")))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .map_err(|error| cannot("start the guard".to_owned(), error))
}

fn open_log(path: &Path) -> std::io::Result<std::fs::File> {
    // For what is said before the guard opens it itself; the size is the guard's business.
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_started_inside_a_run_or_after_a_stop() {
        assert_eq!(may_start(false, false), MayStart::Yes);
        assert_eq!(may_start(false, true), MayStart::Stopped);
        assert_eq!(may_start(true, false), MayStart::InsideARun);
        assert_eq!(may_start(true, true), MayStart::InsideARun);
    }

    #[test]
    fn a_supervisor_gets_no_key() {
        assert!(PASSED.is_sorted());
        assert!(PASSED.iter().all(|name| !name.contains("KEY") && !name.contains("TOKEN")));
    }
}
