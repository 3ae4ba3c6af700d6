//! `scv server --stdio`: the protocol on stdin and stdout, one session, no supervisor.
//!
//! The guard of one worker: it speaks no word of the protocol, and is there so that nothing of the
//! session outlives it.

use std::process::ExitStatus;
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, getppid, kill_process, set_parent_process_death_signal};
use shared::layout::Layout;
use shared::process::{self, Ended, Family, Signal};
use shared::registry::Delegations;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use crate::binaries;
use crate::context::{Context, block_on};
use crate::error::CliError;

/// A worker ends its runs in 2.3 s, whatever they do.
const WORKER_GRACE: Duration = Duration::from_secs(3);

/// Tells us that our parent is gone, or one thread of it: the kernel sends it for both.
const PARENT_DEATH: (Signal, fn() -> SignalKind) = (Signal::USR1, SignalKind::user_defined1);

/// `scv server`
#[derive(Debug, Args)]
pub(crate) struct Server {
    /// Speak on stdin and stdout
    #[arg(long, required = true)]
    stdio: bool,
}

impl Server {
    /// Guards one worker, ends everything that it leaves, and exits with its status.
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        let Self { stdio: _ } = self;
        let worker = binaries::find("scv-worker", context)?;
        let mut command = Command::new(worker);
        command.arg("--scv-home").arg(context.layout.home()).arg("--stdio");
        if let Some(config) = &context.config_path {
            command.env("SCV_CONFIG", config);
        }
        let status = block_on(async {
            reconcile(&context.layout).await;
            guard(command).await
        })?;
        // A thread of the runtime must not keep us from passing the status on.
        std::process::exit(exit_code(status))
    }
}

/// Ends what servers and supervisors that were killed left in this home: no supervisor may ever run
/// here that would do it.
async fn reconcile(layout: &Layout) {
    let records = Delegations::new(layout);
    let mut ended = Vec::new();
    for orphan in records.orphans().unwrap_or_default() {
        if let Some(process) = &orphan.process {
            ended.extend(process::end_found(|| process::tree_of(process)).await);
        }
        if let Err(error) = records.remove(&orphan.handle) {
            eprintln!("cannot remove the record of {}, which is gone: {error}", orphan.handle);
        }
    }
    ended.extend(process::end_found(|| process::marked_orphans(&layout.instance())).await);
    say(&ended, "a session that was killed");
}

/// Tells on stderr what was ended.
fn say(ended: &[Ended], whose: &str) {
    for Ended { name, pid } in ended {
        eprintln!("ended {name} (pid {pid}), which {whose} left behind");
    }
}

async fn guard(mut command: Command) -> Result<ExitStatus, CliError> {
    let cannot = |error| CliError::failed("cannot guard the session").because(error);
    let parent = getppid();
    process::become_subreaper().map_err(cannot)?;
    process::set_name("scv-server");
    let mut ends = Ends::install().map_err(cannot)?;
    set_parent_process_death_signal(Some(PARENT_DEATH.0)).map_err(|error| cannot(error.into()))?;

    let family = Family::new().map_err(cannot)?;
    let mut worker =
        family.spawn(&mut command).map_err(|error| CliError::failed("cannot start scv-worker").because(error))?;
    let mut kill_at = None;
    let status = loop {
        tokio::select! {
            status = worker.wait() => break status.map_err(cannot)?,
            Err(error) = family.tend() => return Err(cannot(error)),
            () = ends.asked(parent) => {
                signal_worker(&worker, Signal::TERM);
                kill_at.get_or_insert(Instant::now() + WORKER_GRACE);
            }
            () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                signal_worker(&worker, Signal::KILL);
                kill_at = Some(Instant::now() + WORKER_GRACE);
            }
        }
    };
    // The worker has ended its runs; what is left has nobody who waits for it.
    say(&family.end_adopted(|_| true, Duration::ZERO).await, "the session");
    Ok(status)
}

fn signal_worker(worker: &Child, signal: Signal) {
    // A child that was not waited for keeps its pid: it cannot be somebody else's.
    if let Some(pid) = worker.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        let _ = kill_process(pid, signal);
    }
}

/// What asks us to end.
struct Ends {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
    parent: tokio::signal::unix::Signal,
}

impl Ends {
    fn install() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            parent: signal(PARENT_DEATH.1())?,
        })
    }

    /// The next request. The end of one thread of our parent is none.
    async fn asked(&mut self, parent: Option<Pid>) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => return,
                _ = self.parent.recv() => if getppid() != parent { return },
            }
        }
    }
}

/// The worker's code; for a signal what a shell would show of it.
fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn the_status_of_the_worker_is_passed_on() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }
}
