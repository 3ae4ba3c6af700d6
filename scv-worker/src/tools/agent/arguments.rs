//! The arguments of a call, checked before anybody is asked.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::agents::Settings;
use crate::agents::invocation::MAX_PROMPT_BYTES;
use crate::tools::ToolError;

/// Efforts, from the least (tools.md).
pub(super) const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

/// The longest model.
const MAX_MODEL_BYTES: usize = 128;

/// What the model passes. A blank optional value counts as omitted: models often send `""` for a
/// field that they mean to leave unset.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    pub prompt: String,
    pub agent: Option<String>,
    pub cwd: Option<String>,
    pub session: Option<String>,
    pub model: Option<String>,
    pub effort: Option<String>,
    pub timeout_seconds: Option<u64>,
}

impl Arguments {
    /// Reads the JSON object.
    pub(super) fn parse(arguments: Value) -> Result<Self, ToolError> {
        let mut call: Self = serde_json::from_value(arguments)
            .map_err(|error| ToolError::Invalid(format!("the arguments of agent are not valid: {error}")))?;
        for value in [&mut call.agent, &mut call.cwd, &mut call.session, &mut call.model, &mut call.effort] {
            *value = value.take().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        }
        Ok(call)
    }

    /// Checks what does not depend on the agent.
    pub(super) fn check(&self) -> Result<(), ToolError> {
        let invalid = |what: String| Err(ToolError::Invalid(what));
        if self.prompt.trim().is_empty() {
            return invalid("prompt is empty; say what the agent shall do".to_owned());
        }
        if self.prompt.starts_with('-') {
            return invalid("prompt starts with -, which would be read as a flag; begin with a word".to_owned());
        }
        if self.prompt.len() > MAX_PROMPT_BYTES {
            return invalid(format!(
                "prompt has {} bytes, more than the {MAX_PROMPT_BYTES} that fit into one argument; write the rest to a \
                 file in the workspace and name that file",
                self.prompt.len()
            ));
        }
        for (name, value) in [("prompt", Some(&self.prompt)), ("cwd", self.cwd.as_ref())] {
            if value.is_some_and(|value| value.contains('\0')) {
                return invalid(format!("{name} holds a NUL character"));
            }
        }
        if let Some(model) = self.model.as_deref().filter(|model| !is_model(model)) {
            return invalid(format!(
                "model {:?} is not allowed: use 1-{MAX_MODEL_BYTES} ASCII letters, digits, or ._:/@[]-, not starting \
                 with - or @",
                shared::text::one_line(model, MAX_MODEL_BYTES)
            ));
        }
        if let Some(effort) = self.effort.as_deref().filter(|effort| !EFFORTS.contains(effort)) {
            let effort = shared::text::one_line(effort, 32);
            return invalid(format!("effort {effort:?} is not allowed: use one of {}", EFFORTS.join(", ")));
        }
        Ok(())
    }

    /// The limit in force.
    pub(super) fn limit(&self, settings: &Settings) -> Result<Duration, ToolError> {
        let ceiling = settings.max_timeout;
        match self.timeout_seconds {
            None => Ok(settings.timeout.min(ceiling)),
            Some(0) => Err(ToolError::Invalid("timeout_seconds has to be at least 1".to_owned())),
            Some(seconds) if seconds > ceiling.as_secs() => Err(ToolError::Invalid(format!(
                "timeout_seconds {seconds} is above the ceiling of {} (tools.max_timeout_seconds)",
                ceiling.as_secs()
            ))),
            Some(seconds) => Ok(Duration::from_secs(seconds)),
        }
    }
}

fn is_model(model: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._:/@[]-".contains(c);
    (1..=MAX_MODEL_BYTES).contains(&model.len()) && model.chars().all(allowed) && !model.starts_with(['-', '@'])
}
