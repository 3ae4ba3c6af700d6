//! One worker, one role: a session over scvd's link, or a session over standard streams.

mod agents;
mod approvals;
mod call;
mod demo;
mod link;
mod provider;
mod runs;
mod secret_like;
mod session;
mod sha256;
mod signals;
mod stdio;
mod tools;
mod turn;
mod worker;
mod workspace;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;
use shared::layout::Layout;
use tokio::task::LocalSet;

/// Runs one SCV session. Started by scvd or `scv server --stdio`, not by hand.
#[derive(Debug, Parser)]
#[command(name = "scv-worker", version)]
struct Arguments {
    /// The instance's home.
    #[arg(long, value_name = "PATH")]
    scv_home: Option<PathBuf>,
    /// The worker's bundle; scvd makes it.
    #[arg(long, value_name = "ID", conflicts_with = "stdio")]
    worker: Option<String>,
    /// The limit of open files that children get back.
    #[arg(long, value_name = "SOFT")]
    nofile: Option<u64>,
    /// One session over standard input and output.
    #[arg(long)]
    stdio: bool,
    /// Prints the agents that a session in this environment would be offered, a JSON line each.
    #[arg(long, conflicts_with_all = ["stdio", "worker"])]
    agents: bool,
    /// The scripted model of `scv demo`.
    #[arg(long, hide = true)]
    demo_model: bool,
    /// The small agent of `scv demo`; what follows is the agent's command line.
    #[arg(long, hide = true, num_args = 0.., allow_hyphen_values = true, value_name = "ARGUMENT")]
    demo_agent: Option<Vec<std::ffi::OsString>>,
}

fn main() {
    let arguments = Arguments::parse();
    start_log();
    // `eprintln!` panics where standard error is a file on a full disk.
    let failed = run(arguments).inspect_err(|error| drop(writeln!(std::io::stderr(), "error: {error:#}"))).is_err();
    // Threads of the runtime may be stuck in a read of standard input; nothing is lost by leaving.
    std::process::exit(i32::from(failed));
}

/// Diagnostics go to standard error: warnings, or what `SCV_LOG` names.
fn start_log() {
    use tracing_subscriber::filter::Targets;
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::util::SubscriberInitExt as _;
    let warnings = || Targets::new().with_default(tracing::Level::WARN);
    let filter: Targets = std::env::var("SCV_LOG").ok().and_then(|f| f.parse().ok()).unwrap_or_else(warnings);
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(std::io::stderr);
    // They would go to standard error, which is what failed: on a full disk `eprintln!` panics.
    let lines = lines.log_internal_errors(false);
    tracing_subscriber::registry().with(lines).with(filter).init();
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    // A task that panics must not leave a session that only looks alive.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    if let Some(arguments) = &arguments.demo_agent {
        return Ok(demo::agent::run(arguments)?);
    }
    if let Some(soft) = arguments.nofile {
        restore_file_limit(soft);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    if arguments.demo_model {
        return local.block_on(&runtime, demo::model::run());
    }
    let home = Layout::choose(arguments.scv_home, std::env::var_os("SCV_HOME"), std::env::var_os("HOME"))
        .context("no home: set SCV_HOME, or HOME")?;
    let layout = Layout::open(&home).with_context(|| format!("cannot use the home {}", home.display()))?;
    if arguments.agents {
        return print_agents(&layout);
    }
    let ended = local.block_on(&runtime, async {
        match arguments.worker {
            Some(id) => worker::run(layout, &id).await,
            None if arguments.stdio => {
                layout.create()?;
                stdio::run(layout).await
            }
            None => anyhow::bail!("say --worker or --stdio; scvd and `scv server --stdio` do"),
        }
    });
    drop(local);
    // Not dropped: that would wait for a read of standard input that may never end.
    runtime.shutdown_background();
    ended
}

/// For `scv doctor`; with a broken configuration those of the defaults.
fn print_agents(layout: &Layout) -> anyhow::Result<()> {
    use shared::config::{Config, Sources};
    let config = Config::load(&Sources::of(layout)).unwrap_or_default();
    let env =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut out = std::io::stdout().lock();
    for program in agents::programs(&agents::Settings::from(&config), &env.collect()) {
        serde_json::to_writer(&mut out, &program)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// scvd raises its own limit; children get the one that it was started with.
fn restore_file_limit(soft: u64) {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // A refusal leaves the higher limit, which harms nobody.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard);
    }
}
