//! What a client asked, with the parts that tests look at.

use std::time::SystemTime;

use serde_json::Value;

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// `POST` or `GET`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// The body as JSON; null where it is none.
    pub body: Value,
    /// The body as it came.
    pub bytes: Vec<u8>,
    /// When it was read.
    pub at: SystemTime,
}

impl Request {
    /// The value of the header `name` (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether it comes from the Codex CLI.
    pub fn is_codex(&self) -> bool {
        self.header("user-agent").is_some_and(|agent| agent.starts_with("codex"))
    }

    /// Whether it comes from SCV.
    pub fn is_scv(&self) -> bool {
        self.header("user-agent").is_some_and(|agent| agent.starts_with("scv/"))
    }

    /// `model` of the body.
    pub fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or_default()
    }

    /// The items of `input`.
    pub fn input(&self) -> &[Value] {
        self.body["input"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// The text of the last message of the user.
    pub fn prompt(&self) -> String {
        self.input().iter().rfind(|item| item["role"] == "user").map(message_text).unwrap_or_default()
    }

    /// The output of the call `call_id`.
    pub fn output(&self, call_id: &str) -> Option<&str> {
        let is_it = |item: &&Value| item["type"] == "function_call_output" && item["call_id"] == call_id;
        self.input().iter().find(is_it)?["output"].as_str()
    }

    /// The output of the last item, where that is a call's output.
    pub fn last_output(&self) -> Option<&str> {
        self.input().last().filter(|item| item["type"] == "function_call_output")?["output"].as_str()
    }

    /// The names of the tools on offer.
    pub fn tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        tools.iter().filter_map(|tool| tool["name"].as_str()).collect()
    }

    pub(super) fn is_model_request(&self) -> bool {
        self.method == "POST" && self.route().ends_with("/responses")
    }

    /// The path without its query.
    pub(super) fn route(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
}

fn message_text(item: &Value) -> String {
    match &item["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}
