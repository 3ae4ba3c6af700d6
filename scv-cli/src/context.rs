//! What every command knows: the instance, the environment, and how talkative to be.
//!
//! The environment is read here and nowhere else.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};

use shared::config::Sources;
use shared::layout::Layout;

use crate::commands::Global;
use crate::error::CliError;

/// What every command knows.
#[derive(Debug)]
pub(crate) struct Context {
    /// The instance.
    pub layout: Layout,
    /// The environment, as far as it is UTF-8.
    pub env: BTreeMap<String, String>,
    /// `--config` or `SCV_CONFIG`, absolute.
    pub config_path: Option<PathBuf>,
    /// Errors and answers only.
    pub quiet: bool,
    /// More of what happens.
    pub verbose: bool,
}

impl Context {
    /// Resolves the home, once.
    pub(crate) fn new(global: &Global) -> Result<Self, CliError> {
        let env: BTreeMap<String, String> =
            std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect();
        let home = Layout::choose(global.scv_home.clone(), std::env::var_os("SCV_HOME"), std::env::var_os("HOME"))
            .ok_or_else(|| CliError::usage("no home: neither --scv-home nor SCV_HOME nor HOME is set"))?;
        let layout = std::path::absolute(&home).and_then(|home| Layout::open(&home)).map_err(|error| {
            let is_a_file = error.kind() == std::io::ErrorKind::AlreadyExists;
            let why = if is_a_file { ": it is no directory" } else { "" };
            let cannot = CliError::usage(format!("cannot use the home {}{why}", home.display()));
            (if is_a_file { cannot } else { cannot.because(error) }).hint("choose another one with `--scv-home`")
        })?;
        let config_path = global.config.as_deref().map(config_path).transpose()?;
        Ok(Self { layout, env, config_path, quiet: global.quiet, verbose: global.verbose })
    }

    /// All layers of the configuration, as a session in `workspace` would read them.
    pub(crate) fn sources(&self, workspace: Option<PathBuf>) -> Sources {
        Sources { workspace, config_path: self.config_path.clone(), env: self.env.clone(), ..Sources::of(&self.layout) }
    }

    /// Whether this process belongs to a session of SCV.
    pub(crate) fn is_inside_a_run(&self) -> bool {
        self.env.contains_key("SCV_SESSION") || self.env.contains_key("SCV_DELEGATION_DEPTH")
    }

    /// How deep this process is delegated. What is no number counts as delegated.
    pub(crate) fn depth(&self) -> u32 {
        self.env.get("SCV_DELEGATION_DEPTH").map_or(0, |depth| depth.parse().unwrap_or(1))
    }

    /// Refuses what a delegated agent must not do.
    pub(crate) fn refuse_if_delegated(&self, verb: &str) -> Result<(), CliError> {
        if self.depth() == 0 {
            return Ok(());
        }
        Err(CliError::usage(format!("`scv {verb}` is refused inside a delegated run"))
            .hint("ask the person at the terminal to run it"))
    }
}

/// Runs a command that talks. The runtime is left behind, so that nothing keeps the process alive.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::failed("cannot start").because(error))?;
    let result = runtime.block_on(future);
    runtime.shutdown_background();
    result
}

/// The path, made absolute: a session's worker works elsewhere. It gets it as JSON.
fn config_path(path: &Path) -> Result<PathBuf, CliError> {
    let cannot = || CliError::usage(format!("cannot use the configuration {}", path.display()));
    let path = std::path::absolute(path).map_err(|error| cannot().because(error))?;
    if path.to_str().is_none() { Err(cannot().hint("its path is not UTF-8")) } else { Ok(path) }
}

fn text(value: OsString) -> Option<String> {
    value.into_string().ok()
}
