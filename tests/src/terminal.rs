//! A real terminal: a tmux server of the test's own, with one pane.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::{DEADLINE, TestEnv, eventually};

/// One pane in which a command runs; `rc=<code>` follows its output.
pub struct Terminal {
    socket: PathBuf,
    vars: Vec<(String, String)>,
}

impl Terminal {
    /// Runs `scv` with `args` in a pane of 100 columns and 30 rows.
    #[must_use]
    pub fn scv(env: &TestEnv, args: &[&str]) -> Self {
        let quoted: Vec<String> = args.iter().map(|arg| format!("'{}'", arg.replace('\'', r"'\''"))).collect();
        let scv = env.command("scv");
        // Ctrl+C is for scv; the shell has to tell its exit code.
        let line = format!(
            "trap : INT; '{}' {}; echo rc=$?; read -r end",
            scv.get_program().to_string_lossy(),
            quoted.join(" ")
        );
        let text = |value: &std::ffi::OsStr| value.to_string_lossy().into_owned();
        let vars = scv.get_envs().filter_map(|(name, value)| Some((text(name), text(value?)))).collect();
        let terminal = Self { socket: env.work().with_file_name("tmux.sock"), vars };
        let mut start = terminal.tmux();
        start.args(["new-session", "-d", "-x", "100", "-y", "30", "-c"]).arg(env.work()).args(["/bin/sh", "-c", &line]);
        assert!(start.status().expect("tmux is installed by tests/run").success());
        terminal
    }

    /// Types; names of keys as tmux knows them (`Enter`, `C-c`).
    pub fn keys(&self, keys: &[&str]) {
        assert!(self.tmux().arg("send-keys").args(keys).status().expect("tmux").success());
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        let shown = self.tmux().args(["capture-pane", "-p", "-J"]).output().expect("tmux");
        String::from_utf8_lossy(&shown.stdout).into_owned()
    }

    /// Waits until `text` is on the screen; tmux tells nobody that it drew something.
    #[track_caller]
    pub fn shows(&self, text: &str) -> String {
        let mut screen = String::new();
        eventually(&format!("{text:?} on the screen"), DEADLINE, || {
            screen = self.screen();
            screen.contains(text)
        });
        screen
    }

    fn tmux(&self) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.env_clear().envs(self.vars.iter().map(|(name, value)| (name, value))).env("TERM", "xterm-256color");
        tmux.arg("-S").arg(&self.socket).args(["-f", "/dev/null"]).stdin(Stdio::null()).stderr(Stdio::null());
        tmux
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended with its pane.
        let _ = self.tmux().arg("kill-server").status();
    }
}
