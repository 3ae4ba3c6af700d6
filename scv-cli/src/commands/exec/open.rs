//! How the session is opened: a new one here, or one that exists.

use std::path::{Path, PathBuf};

use shared::config::Config;
use shared::protocol::client::{ClientContext, OnDisconnect, SessionAttach, SessionStart};
use shared::protocol::{ClientMessage, SessionId, limits};

use super::Exec;
use crate::commands::config::no_key;
use crate::context::Context;
use crate::error::CliError;

/// Room in the message for all but the environment.
const ENV_BYTES: usize = limits::CLIENT_FRAME_BYTES - (64 << 10);

/// What is opened.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    session_id: SessionId,
    start: Option<Start>,
    client: ClientContext,
}

#[derive(Clone, Debug)]
struct Start {
    cwd: PathBuf,
    model: Option<String>,
    delegation_depth: u32,
}

impl Opening {
    /// Checks here what can be checked here: the words are better than those of a remote refusal.
    pub(super) fn new(exec: &Exec, context: &Context) -> Result<Self, CliError> {
        let client = client_context(context)?;
        if let Some(session_id) = exec.session {
            return Ok(Self { session_id, start: None, client });
        }
        let cwd = directory(exec.cwd.as_deref())?;
        check_config(context, &cwd)?;
        let start = Start { cwd, model: exec.model.clone(), delegation_depth: context.depth() };
        Ok(Self { session_id: SessionId::new(), start: Some(start), client })
    }

    /// A session that exists.
    pub(super) fn attach(context: &Context, session_id: SessionId) -> Result<Self, CliError> {
        Ok(Self { session_id, start: None, client: client_context(context)? })
    }

    /// A session that exists, for tests.
    #[cfg(test)]
    pub(super) fn of(session_id: SessionId) -> Self {
        Self { session_id, start: None, client: ClientContext::default() }
    }

    /// The session: ours to choose, so that asking again never makes two.
    pub(super) fn session_id(&self) -> SessionId {
        self.session_id
    }

    /// The message that opens it.
    pub(super) fn message(&self, request_id: String) -> ClientMessage {
        match self.start.clone() {
            Some(start) => ClientMessage::SessionStart(Box::new(SessionStart {
                request_id,
                cwd: start.cwd,
                model: start.model,
                delegation_depth: start.delegation_depth,
                session_id: Some(self.session_id),
                on_disconnect: Some(OnDisconnect::Close),
                client: Some(self.client.clone()),
                ..SessionStart::default()
            })),
            None => self.again(request_id, 0),
        }
    }

    /// The message that opens it again, or for the first time if it exists, after event `after_seq`.
    pub(super) fn again(&self, request_id: String, after_seq: u64) -> ClientMessage {
        ClientMessage::SessionAttach(SessionAttach {
            request_id,
            session_id: self.session_id,
            after_seq,
            // What becomes of it is up to whoever started it.
            on_disconnect: None,
            // Approvals are answered one by one: a session must not remember a `--yes`.
            auto_approve: None,
            client: Some(self.client.clone()),
            observe: false,
        })
    }
}

/// Where we run, as a session needs it.
pub(in crate::commands) fn client_context(context: &Context) -> Result<ClientContext, CliError> {
    let bytes: usize = context.env.iter().map(|(name, value)| name.len() + value.len() + 6).sum();
    if bytes > ENV_BYTES {
        return Err(CliError::usage(format!(
            "the environment has {bytes} bytes, and at most {ENV_BYTES} can be passed on"
        ))
        .hint("start it with fewer variables: `env -i PATH=\"$PATH\" HOME=\"$HOME\" scv exec …`"));
    }
    Ok(ClientContext { env: context.env.clone(), config_path: context.config_path.clone(), overrides: [].into() })
}

fn directory(cwd: Option<&Path>) -> Result<PathBuf, CliError> {
    let cwd = cwd.unwrap_or(Path::new("."));
    let cannot = || CliError::usage(format!("cannot work in {}", cwd.display()));
    let dir = cwd.canonicalize().map_err(|error| cannot().because(error))?;
    if !dir.is_dir() {
        return Err(cannot().hint("it is no directory"));
    }
    if dir.to_str().is_none() {
        // The protocol is JSON.
        return Err(cannot().hint("its path is not UTF-8; choose another one with `--cwd`"));
    }
    Ok(dir)
}

fn check_config(context: &Context, cwd: &Path) -> Result<(), CliError> {
    let config = Config::load(&context.sources(Some(cwd.to_owned())))?;
    let profile = config.provider_profile(None)?;
    if profile.needs_key() && profile.api_key(&context.env).is_none() {
        return Err(no_key(&config.provider.active, &profile.api_key_env));
    }
    Ok(())
}
