//! What more than one check needs, looked up once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use shared::client::{Client, ClientError};
use shared::config::Config;
use shared::fs::read_bounded;
use shared::protocol::control::{Command, Status};

use crate::binaries;
use crate::context::{Context, block_on};
use crate::error::CliError;
use crate::service::{Service, units};

/// An environment may have 128 KiB a string (execve(2)); ours is far smaller.
const MAX_ENVIRON_BYTES: u64 = 1 << 20;

/// What is there.
pub(super) struct Facts<'a> {
    /// The instance, and the environment that this was typed in.
    pub(super) context: &'a Context,
    /// The user manager, where it can be reached.
    pub(super) service: Option<Service>,
    /// The service unit and the socket unit as they are installed.
    pub(super) units: Option<[String; 2]>,
    /// What the manager says about the service unit: `ActiveState` and the like.
    pub(super) unit: BTreeMap<String, String>,
    /// The supervisor.
    pub(super) supervisor: Supervisor,
    /// The configuration as a session in this directory would read it.
    pub(super) config: Result<Config, CliError>,
    /// The supervisor's program.
    pub(super) scvd: Result<PathBuf, CliError>,
    /// The workers' program.
    pub(super) worker: Result<PathBuf, CliError>,
    /// Where the supervisor and what it starts by itself look for programs.
    pub(super) path: SearchPath,
}

/// The supervisor of this home.
pub(super) enum Supervisor {
    /// It answers.
    Runs(Box<Status>),
    /// Nobody listens.
    None,
    /// systemd listens, and would start it.
    Waits,
    /// Somebody listens and does not answer as a supervisor does.
    Broken(CliError),
}

/// A `PATH` and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SearchPath {
    /// The value.
    pub(super) value: String,
    /// Whose.
    pub(super) of: Whose,
}

/// Whose a `PATH` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The supervisor's that runs.
    Supervisor,
    /// The service unit's.
    Unit,
    /// This shell's: what a supervisor would get that a command starts.
    Shell,
}

impl<'a> Facts<'a> {
    /// Looks everything up. Starts nothing: where systemd would start a supervisor for whoever
    /// connects, nobody connects.
    pub(super) fn gather(context: &'a Context) -> Self {
        let service = Service::reach(context);
        let units = service.as_ref().and_then(|service| units::installed(&service.dir, &service.names));
        let show = |service: &Service| {
            service.show(&service.names.service, &["ActiveState", "SubState", "Result", "UnitFileState", "NRestarts"])
        };
        let unit = service.as_ref().filter(|_| units.is_some()).map(show).unwrap_or_default();
        let socket = |service: &Service| service.show(&service.names.socket, &["ActiveState"]);
        let socket = service.as_ref().filter(|_| units.is_some()).map(socket).unwrap_or_default();
        let is = |unit: &BTreeMap<String, String>, state| unit.get("ActiveState").is_some_and(|is| is == state);
        let supervisor = if is(&socket, "active") && !is(&unit, "active") && !is(&unit, "deactivating") {
            Supervisor::Waits
        } else {
            supervisor(context)
        };
        let path = path(context, &supervisor, units.as_ref());
        let config = Config::load(&context.sources(std::env::current_dir().ok())).map_err(CliError::from);
        let (scvd, worker) = (binaries::find("scvd", context), binaries::find("scv-worker", context));
        Self { context, service, units, unit, supervisor, config, scvd, worker, path }
    }

    /// A property of the service unit; empty where it is not known.
    pub(super) fn property(&self, name: &str) -> &str {
        self.unit.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The supervisor, if it answers.
    pub(super) fn status(&self) -> Option<&Status> {
        match &self.supervisor {
            Supervisor::Runs(status) => Some(status),
            _ => None,
        }
    }
}

fn supervisor(context: &Context) -> Supervisor {
    let asked = block_on(async {
        let mut client = match Client::connect(&context.layout, "scv-doctor", &[]).await {
            Err(ClientError::NotRunning { .. }) => return Ok(None),
            other => other?,
        };
        Ok(Some(client.control(Command::Status).await?))
    });
    match asked {
        Ok(Some(status)) => Supervisor::Runs(Box::new(status)),
        Ok(None) => Supervisor::None,
        Err(error) => Supervisor::Broken(error),
    }
}

fn path(context: &Context, supervisor: &Supervisor, units: Option<&[String; 2]>) -> SearchPath {
    if let Supervisor::Runs(status) = supervisor
        && let Some(value) = variable_of(status.pid, "PATH")
    {
        return SearchPath { value, of: Whose::Supervisor };
    }
    if let Some(value) = units.and_then(|[service, _]| units::path_in(service)) {
        return SearchPath { value, of: Whose::Unit };
    }
    SearchPath { value: context.env.get("PATH").cloned().unwrap_or_default(), of: Whose::Shell }
}

/// A variable that a process was started with (proc(5)).
fn variable_of(pid: i32, name: &str) -> Option<String> {
    let environ = read_bounded(format!("/proc/{pid}/environ").as_ref(), MAX_ENVIRON_BYTES).ok()?;
    let mut variables = environ.split(|byte| *byte == 0).filter_map(|variable| std::str::from_utf8(variable).ok());
    variables.find_map(|variable| variable.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let own = std::process::id().cast_signed();
        assert_eq!(variable_of(own, "PATH"), std::env::var("PATH").ok());
        assert_eq!(variable_of(own, "PAT"), None);
    }
}
