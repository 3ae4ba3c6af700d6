//! A strict reader of version 3: what an unmodified client of the protocol accepts, and no more.
//!
//! It denies unknown types, unknown codes, missing fields and wrong kinds of values. Of fields it
//! allows those of version 3 and the optional ones that were added and that it must ignore.

use serde_json::Value;

/// What a field holds.
#[derive(Clone, Copy, Debug)]
enum Is {
    /// A string.
    Text,
    /// A string or null.
    TextOrNull,
    /// A whole number from 0.
    Number,
    /// True or false.
    Flag,
    /// An object.
    Object,
    /// An array.
    Array,
    /// Any JSON.
    Any,
    /// One of the codes of version 3, or of those that were added.
    Code,
    /// One of the risks.
    Risk,
    /// A waiting prompt.
    Entry,
}

use Is::{Any, Array, Code, Entry, Flag, Number, Object, Risk, Text, TextOrNull};

/// One event: its type, the fields that it has to have, those that it may have.
type Row = (&'static str, &'static [(&'static str, Is)], &'static [(&'static str, Is)]);

/// Beside a turn event's own fields.
const TURN: &[(&str, Is)] = &[("request_id", Text), ("session_id", Text), ("turn_id", Text), ("seq", Number)];
/// Beside a session event's own fields.
const SESSION: &[(&str, Is)] = &[("request_id", TextOrNull), ("session_id", Text), ("seq", Number)];

const TURN_EVENTS: &[Row] = &[
    (
        "approval.requested",
        &[("approval_id", Text), ("call_id", Text), ("name", Text), ("risk", Risk), ("cwd", Text), ("summary", Text)],
        &[("expires_unix_ms", Number), ("diff", Object)],
    ),
    ("assistant.completed", &[("content", Text)], &[]),
    ("assistant.delta", &[("content", Text)], &[]),
    ("context.compacted", &[("before_tokens", Number), ("after_tokens", Number), ("removed_messages", Number)], &[]),
    (
        "tool.completed",
        &[("call_id", Text), ("name", Text), ("success", Flag), ("output", Text), ("truncated", Flag)],
        &[("error", Text), ("jobs", Array), ("duration_ms", Number), ("output_bytes", Number)],
    ),
    ("tool.progress", &[("call_id", Text), ("text", Text)], &[]),
    ("tool.proposed", &[("call_id", Text), ("name", Text), ("arguments", Any)], &[]),
    (
        "tool.started",
        &[("call_id", Text), ("name", Text)],
        &[("started_unix_ms", Number), ("limit_ms", Number), ("pid", Number), ("handle", Text)],
    ),
    ("turn.cancelled", &[], &[]),
    ("turn.completed", &[("steps", Number), ("usage", Object)], &[("origin", Object)]),
    ("turn.failed", &[("code", Code), ("message", Text)], &[("origin", Object)]),
    ("turn.started", &[], &[("origin", Object)]),
];

const SESSION_EVENTS: &[Row] = &[
    ("queue.dequeued", &[("queue_id", Text), ("turn_id", Text)], &[]),
    ("queue.enqueued", &[("entry", Entry), ("position", Number)], &[]),
    ("queue.moved", &[("entry", Entry), ("position", Number)], &[]),
    ("queue.removed", &[("queue_id", Text)], &[]),
    ("queue.updated", &[("entry", Entry)], &[]),
    ("session.cleared", &[], &[]),
    ("session.trimmed", &[("removed_messages", Number), ("history_bytes", Number)], &[]),
];

const REPLIES: &[Row] = &[
    ("daemon.status", &[("request_id", Text), ("status", Object)], &[]),
    ("error", &[("code", Code), ("message", Text), ("fatal", Flag)], &[("request_id", TextOrNull), ("entry", Entry)]),
    ("initialized", &[("request_id", Text), ("protocol_version", Number), ("server", Object)], &[("features", Array)]),
    ("queue.snapshot", &[("request_id", TextOrNull), ("session_id", Text), ("entries", Array), ("paused", Flag)], &[]),
    (
        "session.started",
        &[
            ("request_id", Text),
            ("session_id", Text),
            ("cwd", Text),
            ("model", Text),
            ("context_max_tokens", Number),
            ("max_server_frame_bytes", Number),
            ("max_transcript_bytes", Number),
            ("max_transcript_items", Number),
            ("max_prompt_history_bytes", Number),
            ("max_prompt_history_items", Number),
        ],
        &[],
    ),
];

/// Version 3's, and after them those that we added, which go only where version 3 has no own.
const CODES: &[&str] = &[
    "invalid_json",
    "invalid_request",
    "not_initialized",
    "version_mismatch",
    "unsupported",
    "session_not_found",
    "queue_limit",
    "queue_conflict",
    "component_error",
    "delegation_error",
    "provider_error",
    "context_limit",
    "history_limit",
    "response_limit",
    "tool_limit",
    "step_limit",
    "internal_error",
    "session_crashed",
    "session_busy",
    "session_limit",
    "budget",
    "unavailable",
];

const RISKS: &[&str] = &["read_only", "filesystem", "process", "delegate", "network"];

/// Every type that a connection without features may get.
pub fn types() -> Vec<&'static str> {
    TURN_EVENTS.iter().chain(SESSION_EVENTS).chain(REPLIES).map(|row| row.0).collect()
}

/// Why a strict client of version 3 would refuse `event`; none where it reads it.
pub fn refuses(event: &Value) -> Option<String> {
    let kind = event["type"].as_str().unwrap_or_default();
    let families = [(TURN_EVENTS, TURN), (SESSION_EVENTS, SESSION), (REPLIES, &[][..])];
    let row = families.iter().find_map(|(rows, shared)| Some((rows.iter().find(|row| row.0 == kind)?, *shared)));
    let Some(((_, own, optional), shared)) = row else { return Some(format!("an unknown type: {kind:?}")) };
    for (name, is) in own.iter().chain(shared) {
        match event.get(name) {
            None => return Some(format!("{kind}: no {name}")),
            Some(value) if !holds(value, *is) => return Some(format!("{kind}: {name} is no {is:?}: {value}")),
            Some(_) => {}
        }
    }
    for (name, value) in event.as_object().into_iter().flatten() {
        let known = own.iter().chain(shared).chain(*optional).find(|(known, _)| known == name);
        match known {
            None if name == "type" => {}
            None => return Some(format!("{kind}: an unknown field: {name}")),
            Some((_, is)) if !holds(value, *is) => return Some(format!("{kind}: {name} is no {is:?}: {value}")),
            Some(_) => {}
        }
    }
    None
}

fn holds(value: &Value, is: Is) -> bool {
    let one_of = |table: &[&str]| value.as_str().is_some_and(|text| table.contains(&text));
    match is {
        Any => true,
        Array => value.is_array(),
        Code => one_of(CODES),
        Entry => {
            value["queue_id"].is_string()
                && value["revision"].is_u64()
                && value["prompt"].is_string()
                && value["submitter"].is_string()
        }
        Flag => value.is_boolean(),
        Number => value.is_u64(),
        Object => value.is_object(),
        Risk => one_of(RISKS),
        Text => value.is_string(),
        TextOrNull => value.is_string() || value.is_null(),
    }
}
