//! The `PATH` of the user's login shell: a service manager's own finds none of the programs that
//! nvm, asdf, mise or `~/.local/bin` offer.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
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

/// Asks `shell` as a login shell. It works in the user's home, without a terminal.
pub(crate) fn ask(shell: &str, home: &OsStr) -> Result<String, Unknown> {
    let script = format!("printf '\\n{MARK}%s:{MARK}\\n' \"$PATH\"");
    let mut command = Command::new(shell);
    command.args(["-l", "-i", "-c", &script]).current_dir(home);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // A group, to be ended whole, and no terminal that an interactive shell could fight for.
    command.process_group(0).env("TERM", "dumb");
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
        // Not waited for yet, so the number is its own.
        let _ = kill_process_group(group, Signal::KILL);
    }
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

    #[test]
    fn a_noisy_profile_and_a_child_that_holds_the_pipe_do_not_matter() {
        let (dir, shell) = shell("echo welcome; sleep 300 & PATH=/opt/n:$PATH; for last; do :; done; eval \"$last\"");
        let path = ask(&shell, dir.path().as_os_str()).unwrap();
        assert!(path.starts_with("/opt/n:"), "{path}");
    }

    #[test]
    fn a_shell_that_hangs_fails_or_is_missing_gives_its_reason() {
        let (dir, hangs) = shell("exec sleep 300");
        let home = dir.path().as_os_str();
        assert!(ask(&hangs, home).unwrap_err().to_string().contains("did not come up"));
        let (_dir, fails) = shell("echo no; exit 1");
        assert!(ask(&fails, home).unwrap_err().to_string().contains("did not tell"));
        assert!(ask("/nonexistent/shell", home).unwrap_err().to_string().contains("cannot run"));
    }

    #[test]
    fn a_path_with_control_characters_is_none() {
        assert_eq!(between_marks("x\nscv-login-path:/bin:scv-login-path:\n"), Some("/bin"));
        assert_eq!(between_marks("\nscv-login-path:/b\nin:scv-login-path:"), None);
        assert_eq!(between_marks("\nscv-login-path::scv-login-path:"), None);
    }
}
