//! Which agent programs a worker finds: what `scv-worker --agents` prints, and `scv doctor` reads.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One agent that work could be handed to, and where its program is in this environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentProgram {
    /// Its name in the configuration.
    pub agent: String,
    /// What people call it.
    pub product: String,
    /// What the configuration says to start.
    pub command: String,
    /// Where that is, absolute; none if it is not installed here.
    pub path: Option<PathBuf>,
}
