//! The events of a Responses stream that SCV acts on, each parsed once.
//!
//! The event's name says how to read its data, so a delta never becomes a [`Value`].

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use shared::protocol::server::Usage;

use crate::provider::failure::Report;

/// One event.
#[derive(Debug, PartialEq)]
pub(super) enum Event {
    /// The next piece of text of the message at `index`.
    Text { index: u32, delta: String },
    /// The next `bytes` of the arguments of the call at `index`; the whole comes with `Done`.
    Arguments { index: u32, bytes: usize },
    /// A call begins.
    CallAdded { index: u32 },
    /// The whole item at `index`.
    Done { index: u32, item: Value },
    /// The response is whole, or as whole as it gets.
    Finished(Finished),
    /// The provider gave up.
    Failed(Report),
    /// A sign of life that says nothing more.
    Other,
    /// A keep-alive: no sign of progress.
    KeepAlive,
}

/// The last event of a response.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Finished {
    pub output: Vec<Value>,
    pub usage: Usage,
    pub incomplete: Option<String>,
}

/// Reads the event `name` (of its `event` field; may be missing) with `data`.
///
/// Fails with the name of an event whose data is not what the API says.
pub(super) fn parse(name: &str, data: &str) -> Result<Event, String> {
    let name = if name.starts_with("response.") { Cow::Borrowed(name) } else { kind(name, data)? };
    read(&name, data).map_err(|error| format!("data of {} ({error})", shared::text::one_line(&name, 60)))
}

/// The event's type as its data has it, for servers that do not name their events.
fn kind<'a>(name: &'a str, data: &'a str) -> Result<Cow<'a, str>, String> {
    if data.trim() == "[DONE]" {
        return Ok(Cow::Borrowed("done"));
    }
    let head: Head<'_> =
        serde_json::from_str(data).map_err(|error| format!("an event that is no JSON object ({error})"))?;
    // An error that some relays send has no type of its own.
    Ok(if head.r#type.is_empty() && name == "error" { Cow::Borrowed(name) } else { head.r#type })
}

fn read(name: &str, data: &str) -> serde_json::Result<Event> {
    Ok(match name {
        "response.output_text.delta" | "response.refusal.delta" => {
            let Delta { output_index: index, delta } = serde_json::from_str(data)?;
            Event::Text { index, delta: delta.into_owned() }
        }
        "response.function_call_arguments.delta" => {
            let Delta { output_index: index, delta } = serde_json::from_str(data)?;
            Event::Arguments { index, bytes: delta.len() }
        }
        "response.output_item.added" => {
            let Added { output_index: index, item } = serde_json::from_str(data)?;
            if item.r#type == "function_call" { Event::CallAdded { index } } else { Event::Other }
        }
        "response.output_item.done" => {
            let Done { output_index: index, item } = serde_json::from_str(data)?;
            Event::Done { index, item }
        }
        "response.completed" | "response.incomplete" | "response.done" => {
            let Last { response } = serde_json::from_str(data)?;
            finished(response)?
        }
        "response.failed" | "response.error" | "error" => Event::Failed(report(data)?),
        name if name.starts_with("response.") => Event::Other,
        _ => Event::KeepAlive,
    })
}

fn finished(response: LastResponse<'_>) -> serde_json::Result<Event> {
    let reason = response.incomplete_details.map(|details| details.reason);
    let incomplete = match response.status.as_deref() {
        Some("failed" | "cancelled") => return Ok(Event::Failed(response.error.unwrap_or_default().into())),
        Some("incomplete") => Some(reason.unwrap_or_default()),
        _ => reason,
    };
    let incomplete = incomplete.map(|reason| if reason.is_empty() { "unknown".to_owned() } else { reason });
    let output = match response.output {
        Some(output) => serde_json::from_str(output.get())?,
        None => Vec::new(),
    };
    Ok(Event::Finished(Finished { output, usage: response.usage.map(Into::into).unwrap_or_default(), incomplete }))
}

/// The error object in `data`, wherever this kind of event has it.
fn report(data: &str) -> serde_json::Result<Report> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Holder {
        response: Option<Box<Holder>>,
        error: Option<ErrorObject>,
        code: Option<Value>,
        message: Option<String>,
    }
    let holder: Holder = serde_json::from_str(data)?;
    let error = holder.error.or_else(|| holder.response.and_then(|response| response.error));
    let error = error.unwrap_or(ErrorObject { code: holder.code, r#type: None, message: holder.message });
    Ok(error.into())
}

/// The error object in the body of a response that is no stream; empty where there is none.
pub(super) fn report_of_body(body: &[u8]) -> Report {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Body {
        Object { error: ErrorObject },
        Text { error: String },
        Bare { message: String },
        Detail { detail: String },
    }
    let text = |message: String| Report { code: String::new(), message };
    match serde_json::from_slice(body) {
        Ok(Body::Object { error }) => error.into(),
        Ok(Body::Text { error }) => text(error),
        Ok(Body::Bare { message }) => text(message),
        Ok(Body::Detail { detail }) => text(detail),
        Err(_) => Report::default(),
    }
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    r#type: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(default)]
    output_index: u32,
    #[serde(borrow)]
    delta: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Added<'a> {
    #[serde(default)]
    output_index: u32,
    #[serde(borrow)]
    item: AddedItem<'a>,
}

#[derive(Deserialize)]
struct AddedItem<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Done {
    #[serde(default)]
    output_index: u32,
    item: Value,
}

#[derive(Deserialize)]
struct Last<'a> {
    #[serde(borrow)]
    response: LastResponse<'a>,
}

#[derive(Deserialize)]
struct LastResponse<'a> {
    #[serde(default)]
    status: Option<String>,
    #[serde(default, borrow)]
    output: Option<&'a RawValue>,
    #[serde(default)]
    usage: Option<WireUsage>,
    #[serde(default)]
    incomplete_details: Option<IncompleteDetails>,
    #[serde(default)]
    error: Option<ErrorObject>,
}

#[derive(Deserialize)]
struct IncompleteDetails {
    #[serde(default)]
    reason: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorObject {
    /// A string; a number with some relays.
    code: Option<Value>,
    r#type: Option<String>,
    message: Option<String>,
}

impl From<ErrorObject> for Report {
    fn from(error: ErrorObject) -> Self {
        let code = match error.code {
            Some(Value::String(code)) => Some(code),
            _ => error.r#type,
        };
        Self { code: code.unwrap_or_default(), message: error.message.unwrap_or_default() }
    }
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
    #[serde(default)]
    input_tokens_details: Option<InputDetails>,
}

#[derive(Deserialize)]
struct InputDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(usage: WireUsage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cached_tokens: usage.input_tokens_details.and_then(|details| details.cached_tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_delta_is_read_with_and_without_an_event_name() {
        let data = r#"{"type":"response.output_text.delta","output_index":1,"delta":"a\n漢","logprobs":[]}"#;
        let expected = Ok(Event::Text { index: 1, delta: "a\n漢".to_owned() });
        assert_eq!(parse("response.output_text.delta", data), expected);
        assert_eq!(parse("message", data), expected);
    }

    #[test]
    fn arguments_count_decoded() {
        let data = r#"{"output_index":0,"delta":"{\"a\":\"漢\"}"}"#;
        let bytes = "{\"a\":\"漢\"}".len();
        assert_eq!(parse("response.function_call_arguments.delta", data), Ok(Event::Arguments { index: 0, bytes }));
    }

    #[test]
    fn the_last_event_has_usage_and_why_it_stopped() {
        let data = json!({"response": {
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "usage": {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}},
        }});
        let expected = Finished {
            output: Vec::new(),
            usage: Usage { input_tokens: Some(9), output_tokens: Some(2), cached_tokens: Some(4) },
            incomplete: Some("max_output_tokens".to_owned()),
        };
        assert_eq!(parse("response.incomplete", &data.to_string()), Ok(Event::Finished(expected)));
    }

    #[test]
    fn errors_are_found_wherever_they_are() {
        let report = Report { code: "server_error".to_owned(), message: "oh".to_owned() };
        let error = json!({"code": "server_error", "message": "oh"});
        let cases = [
            ("response.failed", json!({"response": {"status": "failed", "error": error}})),
            ("error", json!({"type": "error", "code": "server_error", "message": "oh", "param": null})),
            ("error", json!({"error": {"type": "server_error", "code": 500, "message": "oh"}})),
            ("response.completed", json!({"response": {"status": "failed", "error": error}})),
        ];
        for (name, data) in cases {
            assert_eq!(parse(name, &data.to_string()), Ok(Event::Failed(report.clone())), "{data}");
        }
        assert_eq!(report_of_body(json!({"error": error}).to_string().as_bytes()), report);
        assert_eq!(report_of_body(br#"{"detail":"oh"}"#).message, "oh");
        assert_eq!(report_of_body(b"<html>"), Report::default());
    }

    #[test]
    fn keep_alives_are_no_progress_and_garbage_is_an_error() {
        assert_eq!(parse("ping", r#"{"type":"ping"}"#), Ok(Event::KeepAlive));
        assert_eq!(parse("message", "[DONE]"), Ok(Event::KeepAlive));
        assert_eq!(parse("response.new_kind", "{}"), Ok(Event::Other));
        assert!(parse("message", "<html>").is_err());
        assert!(parse("response.output_text.delta", r#"{"delta":7}"#).is_err());
    }
}
