//! A [`Request`] as the body of `POST /responses`.

use std::rc::Rc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::provider::{Item, Request, ToolSpec};

/// What the request depends on beside the conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options<'a> {
    /// Whether to ask for reasoning in a form that can be repeated without the provider's store.
    pub encrypted_reasoning: bool,
    /// `reasoning.effort`.
    pub effort: Option<&'a str>,
}

/// The body of `request`.
pub(super) fn body(request: &Request, options: Options<'_>) -> Bytes {
    let has_tools = !request.tools.is_empty();
    let body = Body {
        model: &request.model,
        instructions: &request.instructions,
        input: request.items.iter().filter_map(input).collect(),
        tools: request.tools.iter().map(tool).collect(),
        tool_choice: has_tools.then_some("auto"),
        parallel_tool_calls: has_tools.then_some(true),
        reasoning: options.effort.map(|effort| Reasoning { effort }),
        include: if options.encrypted_reasoning { &["reasoning.encrypted_content"] } else { &[] },
        // Nothing of a conversation stays with the provider; the journal has it.
        store: false,
        stream: true,
    };
    // Strings and values only: there is nothing that could not be written.
    serde_json::to_vec(&body).expect("a request is JSON").into()
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    input: Vec<Input<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'static [&'static str],
    store: bool,
    stream: bool,
}

#[derive(Serialize)]
struct Reasoning<'a> {
    effort: &'a str,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    strict: bool,
}

fn tool(spec: &ToolSpec) -> Tool<'_> {
    // Not strict: a strict schema may have no optional field.
    Tool {
        r#type: "function",
        name: &spec.name,
        description: &spec.description,
        parameters: &spec.parameters,
        strict: false,
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Input<'a> {
    Message { r#type: &'static str, role: &'static str, content: [Part<'a>; 1] },
    Call { r#type: &'static str, call_id: &'a str, name: &'a str, arguments: &'a str },
    Output { r#type: &'static str, call_id: &'a str, output: &'a str },
    Opaque(&'a Value),
}

#[derive(Serialize)]
struct Part<'a> {
    r#type: &'static str,
    text: &'a str,
}

fn input(item: &Rc<Item>) -> Option<Input<'_>> {
    let message = |role, r#type, text| Input::Message { r#type: "message", role, content: [Part { r#type, text }] };
    Some(match item.as_ref() {
        Item::User { text } => message("user", "input_text", text),
        Item::Note { text } => message("developer", "input_text", text),
        // An answer that only calls tools; the API refuses an empty part.
        Item::Assistant { text } if text.is_empty() => return None,
        Item::Assistant { text } => message("assistant", "output_text", text),
        Item::Call { call_id, name, arguments } => Input::Call { r#type: "function_call", call_id, name, arguments },
        Item::Output { call_id, output } => Input::Output { r#type: "function_call_output", call_id, output },
        Item::Opaque { value } => Input::Opaque(value),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sent(request: &Request, options: Options<'_>) -> Value {
        serde_json::from_slice(&body(request, options)).unwrap()
    }

    #[test]
    fn every_item_has_its_place_in_the_request() {
        let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"});
        let text = |text: &str| text.to_owned();
        let items = [
            Item::User { text: text("hello") },
            Item::Note { text: text("note") },
            Item::Opaque { value: reasoning.clone() },
            Item::Assistant { text: text("hi") },
            Item::Assistant { text: text("") },
            Item::Call { call_id: text("c1"), name: text("read"), arguments: text("{\"path\": 1 }") },
            Item::Output { call_id: text("c1"), output: text("data") },
        ];
        let tools = [ToolSpec {
            name: text("read"),
            description: text("Reads."),
            parameters: json!({"type": "object", "properties": {}}),
        }];
        let request = Request {
            model: text("m"),
            instructions: text("be brief"),
            items: items.into_iter().map(Rc::new).collect(),
            tools: Rc::new(tools),
        };
        let options = Options { encrypted_reasoning: true, effort: Some("high") };
        assert_eq!(
            sent(&request, options),
            json!({
                "model": "m",
                "instructions": "be brief",
                "input": [
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
                    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "note"}]},
                    reasoning,
                    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
                    {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{\"path\": 1 }"},
                    {"type": "function_call_output", "call_id": "c1", "output": "data"},
                ],
                "tools": [{
                    "type": "function",
                    "name": "read",
                    "description": "Reads.",
                    "parameters": {"type": "object", "properties": {}},
                    "strict": false,
                }],
                "tool_choice": "auto",
                "parallel_tool_calls": true,
                "reasoning": {"effort": "high"},
                "include": ["reasoning.encrypted_content"],
                "store": false,
                "stream": true,
            })
        );
    }

    #[test]
    fn a_session_without_tools_sends_none() {
        let request =
            Request { model: "m".to_owned(), instructions: String::new(), items: Vec::new(), tools: Rc::new([]) };
        let options = Options { encrypted_reasoning: false, effort: None };
        assert_eq!(sent(&request, options), json!({"model": "m", "input": [], "store": false, "stream": true}));
    }
}
