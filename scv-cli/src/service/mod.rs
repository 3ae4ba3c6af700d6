//! This home as a service of systemd's user manager, spoken to through `systemctl --user`.

pub(crate) mod linger;
pub(crate) mod login_path;
pub(crate) mod units;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use shared::layout::Layout;
use units::Names;

use crate::context::Context;
use crate::error::CliError;
use crate::holder::holder;

/// The user manager, and the units of this home.
#[derive(Debug)]
pub(crate) struct Service {
    /// The units.
    pub names: Names,
    /// Where the user's units are.
    pub dir: PathBuf,
    runtime_dir: PathBuf,
    /// Where its log is.
    pub journal_hint: String,
}

impl Service {
    /// The user manager, if there is one that answers this process.
    pub(crate) fn reach(context: &Context) -> Option<Self> {
        let variable = |name: &str| context.env.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let runtime_dir = variable("XDG_RUNTIME_DIR")
            .unwrap_or_else(|| PathBuf::from(format!("/run/user/{}", rustix::process::getuid().as_raw())));
        let config = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")))?;
        let names = Names::of(&context.layout);
        let journal_hint = format!("`journalctl --user -u {}` has its log", names.service);
        let service = Self { names, dir: config.join("systemd/user"), runtime_dir, journal_hint };
        // The manager's own socket: what has only a bus has no manager.
        std::os::unix::net::UnixStream::connect(service.runtime_dir.join("systemd/private")).ok()?;
        Some(service)
    }

    /// Whether this home has units.
    pub(crate) fn is_installed(&self) -> bool {
        self.dir.join(&self.names.service).exists()
    }

    /// Installs the units, and has them started at boot; whether something changed in them.
    pub(crate) fn install(&self, contents: &[String; 2]) -> Result<bool, CliError> {
        let install = units::install(&self.dir, &self.names, contents);
        let changed = install.map_err(|error| {
            CliError::failed(format!("cannot write the units to {}", self.dir.display())).because(error)
        })?;
        if changed {
            self.systemctl(&["daemon-reload"])?;
        }
        let Names { service, socket, .. } = &self.names;
        self.systemctl(&["enable", "--quiet", service, socket])?;
        Ok(changed)
    }

    /// Starts units that are installed; returns once the supervisor is ready.
    ///
    /// Fails with clear words where a supervisor that systemd does not know serves the home.
    pub(crate) fn start_again(&self, layout: &Layout) -> Result<(), CliError> {
        let Names { service, socket, .. } = &self.names;
        // A start limit that was hit is forgotten: somebody asks for it.
        let _ = self.call(&["reset-failed", service, socket]);
        let started = self.systemctl(&["start", socket, service]);
        match holder(layout).filter(|_| started.is_err()) {
            Some(pid) => Err(CliError::failed(format!("another scvd (pid {pid}) serves this home without systemd"))
                .hint(format!("`kill -INT {pid}` ends it and everything it started; then `scv start`"))),
            None => started,
        }
    }

    /// Starts the supervisor anew, with the units as they are now; sessions go on.
    pub(crate) fn restart(&self) -> Result<(), CliError> {
        self.systemctl(&["restart", &self.names.service])
    }

    /// Some properties of a unit, by name (systemctl(1), `show`); empty where the manager does not tell.
    pub(crate) fn show(&self, unit: &str, properties: &[&str]) -> BTreeMap<String, String> {
        let Ok(output) = self.call(&["show", unit, "--property", &properties.join(",")]) else {
            return BTreeMap::new();
        };
        let told = String::from_utf8_lossy(&output.stdout);
        told.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    }

    /// Stops the units, and keeps them from being started at the next boot.
    pub(crate) fn stop(&self) -> Result<(), CliError> {
        let Names { service, socket, slice } = &self.names;
        self.systemctl(&["stop", socket, service, slice])?;
        self.systemctl(&["disable", "--quiet", service, socket])
    }

    /// Removes the units; whether there were any.
    pub(crate) fn uninstall(&self) -> Result<bool, CliError> {
        let removed = units::remove(&self.dir, &self.names).map_err(|error| {
            CliError::failed(format!("cannot remove the units from {}", self.dir.display())).because(error)
        })?;
        self.systemctl(&["daemon-reload"])?;
        Ok(removed)
    }

    fn systemctl(&self, args: &[&str]) -> Result<(), CliError> {
        let failed = || CliError::failed(format!("`systemctl --user {}` failed", args.join(" ")));
        let output = self.call(args).map_err(|error| failed().because(error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or_default().trim().to_owned();
        Err(CliError { what: format!("{}: {said}", failed().what), ..failed() }.hint(&self.journal_hint))
    }

    fn call(&self, args: &[&str]) -> std::io::Result<Output> {
        let mut command = Command::new("systemctl");
        command.args(["--user", "--no-pager", "--no-ask-password"]).args(args).stdin(Stdio::null());
        command.env("XDG_RUNTIME_DIR", &self.runtime_dir);
        command.output()
    }
}

/// What the service's `PATH` is to be, and why it is not the login shell's.
pub(crate) fn path_for_the_service(context: &Context, now: Option<&str>) -> (String, Option<login_path::Unknown>) {
    match login_path::ask(&context.env) {
        Ok(path) => (path, None),
        Err(unknown) => {
            // What was captured once is better than what is activated in this terminal.
            let known = now.or_else(|| context.env.get("PATH").map(String::as_str));
            (known.unwrap_or("/usr/local/bin:/usr/bin:/bin").to_owned(), Some(unknown))
        }
    }
}
