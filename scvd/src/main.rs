//! `scvd`: the supervisor. It owns the socket, hands connections to workers, and knows at every
//! moment what it started. It never thinks: no HTTP, no model, no terminal, no agent output.

mod control;
mod daemon;
mod error;
mod guard;
mod index;
mod limits;
mod listener;
mod lock;
mod log;
mod notify;
mod reconcile;
mod scopes;
mod settings;
mod signals;
mod supervise;
mod takeover;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use shared::layout::Layout;

/// The supervisor of one SCV home. Started by `scv`; rarely by hand.
#[derive(Debug, Parser)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(name = "scvd", version)]
struct Arguments {
    /// The home; else `$SCV_HOME`, else `~/.scv`.
    #[arg(long, value_name = "PATH")]
    scv_home: Option<PathBuf>,
    /// Start the supervisor, and start it again when it dies.
    #[arg(long)]
    guard: bool,
    /// With --guard: stay in this terminal.
    #[arg(long, requires = "guard")]
    foreground: bool,
    /// Only tell whether nobody serves the home: systemd asks before it binds the socket.
    #[arg(long, hide = true, conflicts_with = "guard")]
    is_free: bool,
    /// Leave when there was nothing to do for `supervisor.idle_exit_seconds`.
    #[arg(long, hide = true)]
    on_demand: bool,
    /// The guard that started this supervisor, and what it had as children before.
    #[arg(long, hide = true, value_name = "PID,…", value_delimiter = ',')]
    guarded_by: Vec<i32>,
    /// Take over from the supervisor at the other end of standard input.
    #[arg(long, hide = true, conflicts_with = "guard")]
    take_over: bool,
    /// With --guard: the supervisor that runs already, as a child of this process.
    #[arg(long, hide = true, value_name = "PID", requires = "guard")]
    watch: Option<i32>,
    /// With --guard: what this process had as children before.
    #[arg(long, hide = true, value_name = "PID,…", value_delimiter = ',', requires = "guard")]
    strangers: Vec<i32>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let home = Layout::choose(arguments.scv_home, std::env::var_os("SCV_HOME"), std::env::var_os("HOME"));
    let Some(home) = home else {
        return refuse("there is no home: set SCV_HOME, or pass --scv-home");
    };
    let layout = match std::path::absolute(&home).and_then(|home| Layout::open(&home)) {
        Ok(layout) => layout,
        Err(cause) => return refuse(&format!("cannot open the home {}: {cause}", home.display())),
    };
    if arguments.is_free {
        return match lock::look(&layout) {
            Ok(()) => ExitCode::SUCCESS,
            Err(held) => {
                let error = error::BootError::Lock(held);
                tell(&error.sentence());
                ExitCode::from(error.exit_code())
            }
        };
    }
    if arguments.guard {
        let how = guard::How { foreground: arguments.foreground, on_demand: arguments.on_demand };
        let before = arguments.watch.map(|scvd| guard::Before { scvd, strangers: arguments.strangers });
        return guard::run(&layout, how, before);
    }
    log::start(std::env::var("SCV_LOG").ok().as_deref());
    let family = if arguments.take_over {
        supervise::Strangers::inherited(arguments.guarded_by)
    } else {
        supervise::Strangers::before(arguments.guarded_by)
    };
    let how = daemon::How { on_demand: arguments.on_demand, take_over: arguments.take_over };
    match daemon::run(layout, how, family) {
        Ok(code) => code,
        Err(error) => {
            let sentence = error.sentence();
            tracing::error!("{sentence}");
            notify::failed(&sentence);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Ends before there is a log.
fn refuse(sentence: &str) -> ExitCode {
    tell(sentence);
    notify::failed(sentence);
    ExitCode::from(error::EXIT_CANNOT_START)
}

fn tell(sentence: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "error: {sentence}");
}
