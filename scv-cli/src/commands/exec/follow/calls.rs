//! The tool calls of a turn, for people: what runs, since when, and its limit.

use std::time::Duration;

use serde_json::Value;
use shared::protocol::server::{ToolCompleted, ToolErrorKind};
use shared::text;
use tokio::time::Instant;

use super::Act;
use crate::output;

/// What a call is about, in at most this many bytes.
const WHAT_BYTES: usize = 120;

/// Calls that were proposed and have not ended.
#[derive(Debug, Default)]
pub(in crate::commands::exec) struct Calls(Vec<Call>);

#[derive(Debug)]
struct Call {
    id: String,
    title: String,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    since: Instant,
    limit: Option<Duration>,
}

impl Calls {
    /// The model wants a call.
    pub(in crate::commands::exec) fn proposed(&mut self, id: String, name: &str, arguments: &Value) {
        let title = title(name, arguments);
        self.0.push(Call { id, title, running: None });
    }

    /// It runs.
    pub(in crate::commands::exec) fn started(
        &mut self,
        id: &str,
        name: &str,
        limit_ms: Option<u64>,
        now: Instant,
    ) -> Act {
        let limit = limit_ms.map(Duration::from_millis);
        let running = Some(Running { since: now, limit });
        let index = self.0.iter().position(|call| call.id == id).unwrap_or_else(|| {
            self.0.push(Call { id: id.to_owned(), title: name.to_owned(), running: None });
            self.0.len() - 1
        });
        self.0[index].running = running;
        let title = &self.0[index].title;
        let limit = limit.map(|limit| format!(" (limit {})", output::duration(limit))).unwrap_or_default();
        Act::Say(format!("> {title}{limit}"))
    }

    /// What it does.
    pub(in crate::commands::exec) fn progress(&self, id: &str, text: &str) -> Vec<Act> {
        // Two calls never run at once today; with several the name tells them apart.
        let running = self.0.iter().filter(|call| call.running.is_some()).count();
        let name = self.0.iter().find(|call| call.id == id && running > 1);
        let name = name.map(|call| format!("{}: ", text::cut(&call.title, 40))).unwrap_or_default();
        text.lines().filter(|line| !line.trim().is_empty()).map(|line| Act::Say(format!("  | {name}{line}"))).collect()
    }

    /// It ended, run or not.
    pub(in crate::commands::exec) fn completed(&mut self, completed: &ToolCompleted, now: Instant) -> Act {
        let index = self.0.iter().position(|call| call.id == completed.call_id);
        let call = index.map(|index| self.0.remove(index));
        let took = completed.duration_ms.map(Duration::from_millis);
        let took = took.or_else(|| call.as_ref()?.running.as_ref().map(|running| now - running.since));
        let took = took.map(|took| format!(" after {}", output::duration(took))).unwrap_or_default();
        let title = call.map_or_else(|| completed.name.clone(), |call| call.title);
        if completed.success {
            return Act::Say(format!("< {} done{took}", completed.name));
        }
        let how = match completed.error {
            // It never ran.
            Some(ToolErrorKind::Denied) => return Act::Say(format!("< {title}: denied")),
            Some(ToolErrorKind::Cancelled) => "cancelled",
            Some(ToolErrorKind::InvalidArguments) => "refused",
            Some(ToolErrorKind::Unavailable) => "is not available",
            Some(ToolErrorKind::Limit) => "reached its limit",
            Some(ToolErrorKind::UnknownTool) => "does not exist",
            Some(ToolErrorKind::Failed | ToolErrorKind::Unknown) | None => "failed",
        };
        let why = text::one_line(&why(&completed.output), 160);
        let why = if why.is_empty() { why } else { format!(": {why}") };
        Act::Say(format!("< {} {how}{took}{why}", completed.name))
    }

    /// The call that runs, since when, and its limit.
    pub(in crate::commands::exec) fn status(&self, now: Instant) -> Option<String> {
        let (call, running) = self.0.iter().rev().find_map(|call| Some((call, call.running.as_ref()?)))?;
        let since = output::whole_seconds(now - running.since);
        let limit = running.limit.map(|limit| format!(" of {}", output::duration(limit))).unwrap_or_default();
        Some(format!("{} · {since}{limit}", text::cut(&call.title, 48)))
    }
}

/// Why a call failed: what its result says, be it text or fields.
fn why(output: &str) -> String {
    let fields: Option<Value> = serde_json::from_str(output).ok();
    let field = |name: &str| fields.as_ref()?.get(name)?.as_str().map(String::from);
    field("error")
        .or_else(|| field("exit_status"))
        .unwrap_or_else(|| output.lines().next().unwrap_or_default().to_owned())
}

/// The tool, and what it is about.
fn title(name: &str, arguments: &Value) -> String {
    // Models write arguments as JSON text; servers may pass either on.
    let parsed = arguments.as_str().and_then(|text| serde_json::from_str(text).ok());
    let arguments: &Value = parsed.as_ref().unwrap_or(arguments);
    let text = |field: &str| arguments.get(field).and_then(Value::as_str);
    let what = match (name, text("agent"), text("prompt")) {
        ("agent", agent, Some(prompt)) => Some(format!("{}: {prompt}", agent.unwrap_or("default"))),
        _ => ["command", "path", "url", "query"].iter().find_map(|field| text(field)).map(String::from),
    };
    let what = what.unwrap_or_else(|| match arguments {
        Value::Object(fields) if fields.is_empty() => String::new(),
        other => other.to_string(),
    });
    let what = text::one_line(&what, WHAT_BYTES);
    if what.is_empty() { name.to_owned() } else { format!("{name}: {what}") }
}
