//! The `PATH` of the user's login shell: a service manager's own finds none of the programs that
//! nvm, asdf, mise or `~/.local/bin` offer.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// A profile that takes longer is not waited for.
const WITHIN: Duration = Duration::from_secs(5);

/// More than any `PATH`; what a noisy profile prints beyond it is not read.
const MAX_BYTES: u64 = 256 << 10;

/// Around the value, so that what a profile prints does not matter.
const MARK: &str = "scv-login-path:";

/// What a login begins with (login.defs(5), `ENV_PATH`); the profile adds to it. The caller's own
/// `PATH` would bring in what is activated in this terminal alone.
const AT_LOGIN: &str = "/usr/local/bin:/usr/bin:/bin";

/// Variables that a login has before any profile.
const PASSED: [&str; 8] = ["HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "SHELL", "USER", "XDG_RUNTIME_DIR"];

/// Why it is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unknown {
    /// The shell does not start.
    #[error("cannot run {shell}")]
    Run {
        /// The shell.
        shell: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It takes too long.
    #[error("{0} did not come up within {WITHIN:?}")]
    Slow(String),
    /// It says something else.
    #[error("{0} did not tell its PATH")]
    Silent(String),
}

/// Asks the login shell of the environment `env`, in a terminal-less session of its own.
///
/// An interactive shell (`.bashrc` and its like are read by no other) that is not in the foreground
/// of its terminal stops itself until it is: `scv login-shell` leaves the terminal, then becomes it.
pub(crate) fn ask(env: &BTreeMap<String, String>) -> Result<String, Unknown> {
    let shell = env.get("SHELL").filter(|shell| !shell.is_empty()).cloned().unwrap_or_else(of_the_account);
    let shell = shell.as_str();
    let unknown = |source| Unknown::Run { shell: shell.to_owned(), source };
    let mut command = Command::new(std::env::current_exe().map_err(unknown)?);
    command.args(["login-shell", "--", shell]);
    told_by(shell, command, env)
}

/// Where no login has set `SHELL`: the one that a login would start.
fn of_the_account() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
    let shell = user.and_then(|user| user.shell.into_os_string().into_string().ok());
    shell.filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".to_owned())
}

fn told_by(shell: &str, mut command: Command, env: &BTreeMap<String, String>) -> Result<String, Unknown> {
    command.args(["-l", "-i", "-c", &format!("printf '\\n{MARK}%s:{MARK}\\n' \"$PATH\"")]);
    command.env_clear().envs(env.iter().filter(|(name, _)| PASSED.contains(&name.as_str())));
    command.env("TERM", "dumb").env("PATH", AT_LOGIN);
    command.current_dir(env.get("HOME").map(Path::new).filter(|home| home.is_dir()).unwrap_or(Path::new("/")));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|source| Unknown::Run { shell: shell.to_owned(), source })?;
    let (send, told) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            // Until the mark, not the end: a profile may leave something that holds the pipe.
            let _ = read_until_marked(stdout, &mut text);
            let _ = send.send(String::from_utf8_lossy(&text).into_owned());
        });
    }
    let told = told.recv_timeout(WITHIN);
    end(&mut child);
    let told = told.map_err(|_| Unknown::Slow(shell.to_owned()))?;
    between_marks(&told).map(str::to_owned).ok_or_else(|| Unknown::Silent(shell.to_owned()))
}

/// `scv login-shell`: becomes the command line, in a session of its own. Returns only if it cannot.
pub(crate) fn become_it(command: &[String]) -> std::io::Error {
    let Some((program, args)) = command.split_first() else { return std::io::ErrorKind::InvalidInput.into() };
    match nix::unistd::setsid() {
        Ok(_) => Command::new(program).args(args).exec(),
        Err(errno) => errno.into(),
    }
}

fn read_until_marked(stdout: impl std::io::Read, text: &mut Vec<u8>) -> std::io::Result<()> {
    let mut stdout = stdout.take(MAX_BYTES);
    let mut chunk = [0; 4096];
    loop {
        let read = std::io::Read::read(&mut stdout, &mut chunk)?;
        text.extend_from_slice(&chunk[..read]);
        if read == 0 || between_marks(&String::from_utf8_lossy(text)).is_some() {
            return Ok(());
        }
    }
}

fn between_marks(text: &str) -> Option<&str> {
    let (_, from) = text.split_once(&format!("\n{MARK}"))?;
    let (path, _) = from.split_once(&format!(":{MARK}"))?;
    let is_path = !path.is_empty() && !path.chars().any(char::is_control);
    is_path.then_some(path)
}

fn end(child: &mut Child) {
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        // Not waited for yet, so the number is its own. Before its `setsid` it has no group.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn shell(script: &str) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shell");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let shell = path.to_str().unwrap().to_owned();
        (dir, shell)
    }

    /// Without `setsid`, for which it takes a program of ours; a group of its own is to be ended whole.
    fn told(shell: &str, home: &Path) -> Result<String, Unknown> {
        let mut command = Command::new(shell);
        command.process_group(0);
        told_by(shell, command, &[("HOME".to_owned(), home.to_str().unwrap().to_owned())].into())
    }

    #[test]
    fn a_noisy_profile_and_a_child_that_holds_the_pipe_do_not_matter() {
        let (dir, shell) = shell("echo welcome; sleep 300 & PATH=/opt/n:$PATH; for last; do :; done; eval \"$last\"");
        let path = told(&shell, dir.path()).unwrap();
        assert_eq!(path, format!("/opt/n:{AT_LOGIN}"));
    }

    #[test]
    fn a_shell_that_hangs_fails_or_is_missing_gives_its_reason() {
        let (dir, hangs) = shell("exec sleep 300");
        assert!(told(&hangs, dir.path()).unwrap_err().to_string().contains("did not come up"));
        let (_dir, fails) = shell("echo no; exit 1");
        assert!(told(&fails, dir.path()).unwrap_err().to_string().contains("did not tell"));
        assert!(told("/nonexistent/shell", dir.path()).unwrap_err().to_string().contains("cannot run"));
    }

    #[test]
    fn nothing_of_this_shell_but_who_one_is_goes_in() {
        assert!(PASSED.is_sorted());
        assert!(!PASSED.iter().any(|name| name.contains("KEY") || name.contains("TOKEN") || *name == "PATH"));
    }

    #[test]
    fn a_path_with_control_characters_is_none() {
        assert_eq!(between_marks("x\nscv-login-path:/bin:scv-login-path:\n"), Some("/bin"));
        assert_eq!(between_marks("\nscv-login-path:/b\nin:scv-login-path:"), None);
        assert_eq!(between_marks("\nscv-login-path::scv-login-path:"), None);
    }
}
