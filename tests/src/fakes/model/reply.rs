//! What the model says, and how it fails to.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Gate, Request};

/// One reply, built in the order in which it is sent.
///
/// Unless told otherwise it is a whole response: what is open is closed, and
/// `response.completed` with the usage follows.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(super) status: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) steps: Vec<Step>,
    /// Bytes of a piece of the body; whole steps where it is `None`.
    pub(super) piece: Option<usize>,
    output: Vec<Value>,
    message: Option<String>,
    ending: Ending,
    usage: Value,
}

/// What is sent next.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Bytes(Vec<u8>),
    Gate(Gate),
    Pause(Duration),
    /// Sends this again and again until the client leaves or the gate opens.
    Repeat(Vec<u8>, Duration, Gate),
    /// Closes the connection in the middle of the body.
    Cut,
}

#[derive(Clone, Debug)]
enum Ending {
    Completed,
    Incomplete(String),
    Failed(Value),
    Missing,
}

impl Default for Reply {
    fn default() -> Self {
        Self::new()
    }
}

impl Reply {
    /// A response that says nothing yet.
    pub fn new() -> Self {
        let created = |r#type: &str| json!({"type": r#type, "response": {"id": "resp_fake", "object": "response", "status": "in_progress", "output": []}});
        let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        let reply = Self {
            status: "200 OK".to_owned(),
            headers,
            steps: Vec::new(),
            piece: None,
            output: Vec::new(),
            message: None,
            ending: Ending::Completed,
            usage: usage(10, 5, 0),
        };
        reply.event(&created("response.created")).event(&created("response.in_progress"))
    }

    /// A response of one message.
    pub fn text(text: &str) -> Self {
        Self::new().delta(text)
    }

    /// An answer that is no stream, such as `Reply::status("429 Too Many Requests")`.
    pub fn status(status: &str) -> Self {
        let mut reply = Self::bare();
        status.clone_into(&mut reply.status);
        reply
    }

    /// An answer with the API's error object.
    pub fn error(status: &str, code: &str, message: &str) -> Self {
        let body = json!({"error": {"message": message, "type": code, "param": null, "code": code}});
        Self::status(status).header("content-type", "application/json").bytes(body.to_string())
    }

    /// 200 with `bytes` as an event stream, whatever they are.
    pub fn garbage(bytes: impl Into<Vec<u8>>) -> Self {
        Self::bare().header("content-type", "text/event-stream").bytes(bytes)
    }

    /// 200 with a page, as a captive portal sends it.
    pub fn html() -> Self {
        Self::bare().header("content-type", "text/html").bytes("<html><body>Please sign in</body></html>")
    }

    /// Closes the connection without an answer.
    pub fn hang_up() -> Self {
        let mut reply = Self::status("");
        reply.steps.push(Step::Cut);
        reply
    }

    fn bare() -> Self {
        Self { headers: Vec::new(), steps: Vec::new(), ending: Ending::Missing, ..Self::new() }
    }

    /// The next piece of the message's text; begins a message where none is open.
    #[must_use]
    pub fn delta(mut self, text: &str) -> Self {
        let index = self.output.len();
        let id = format!("msg_{index}");
        if self.message.is_none() {
            let item =
                json!({"id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": []});
            let part = json!({"type": "output_text", "text": "", "annotations": []});
            self = self
                .event(&json!({"type": "response.output_item.added", "output_index": index, "item": item}))
                .event(&json!({"type": "response.content_part.added", "item_id": id, "output_index": index, "content_index": 0, "part": part}));
        }
        self.message.get_or_insert_default().push_str(text);
        self.event(&json!({"type": "response.output_text.delta", "item_id": id, "output_index": index, "content_index": 0, "delta": text}))
    }

    /// Several deltas.
    #[must_use]
    pub fn deltas<'a>(self, texts: impl IntoIterator<Item = &'a str>) -> Self {
        texts.into_iter().fold(self, Self::delta)
    }

    /// A reasoning item, opaque as the real ones.
    #[must_use]
    pub fn reasoning(self, text: &str) -> Self {
        let this = self.close_message();
        let id = format!("rs_{}", this.output.len());
        let summary = json!([{"type": "summary_text", "text": text}]);
        let item =
            json!({"id": id, "type": "reasoning", "summary": summary, "encrypted_content": format!("gAAAA{text}")});
        this.item(&item)
    }

    /// A call of `name`; its id is `call_` and the number of its item.
    #[must_use]
    pub fn call(self, name: &str, arguments: &Value) -> Self {
        let this = self.close_message();
        let id = format!("call_{}", this.output.len());
        this.call_as(&id, name, &arguments.to_string())
    }

    /// A call with everything as given; `arguments` need not be JSON.
    #[must_use]
    pub fn call_as(self, call_id: &str, name: &str, arguments: &str) -> Self {
        let this = self.close_message();
        let index = this.output.len();
        let id = format!("fc_{index}");
        let item = |status: &str, arguments: &str| json!({"id": id, "type": "function_call", "status": status, "call_id": call_id, "name": name, "arguments": arguments});
        let whole = item("completed", arguments);
        let mut this = this
            .event(&json!({"type": "response.output_item.added", "output_index": index, "item": item("in_progress", "")}))
            .event(&json!({"type": "response.function_call_arguments.delta", "item_id": id, "output_index": index, "delta": arguments}))
            .event(&json!({"type": "response.function_call_arguments.done", "item_id": id, "output_index": index, "arguments": arguments}))
            .event(&json!({"type": "response.output_item.done", "output_index": index, "item": whole}));
        this.output.push(whole);
        this
    }

    /// A whole item of any kind.
    #[must_use]
    pub fn item(self, item: &Value) -> Self {
        let this = self.close_message();
        let index = this.output.len();
        let mut this = this
            .event(&json!({"type": "response.output_item.added", "output_index": index, "item": item}))
            .event(&json!({"type": "response.output_item.done", "output_index": index, "item": item}));
        this.output.push(item.clone());
        this
    }

    /// The usage of the last event; 10 in, 5 out, none cached where it is not called.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64, cached: u64) -> Self {
        self.usage = usage(input, output, cached);
        self
    }

    /// Ends with `response.incomplete`.
    #[must_use]
    pub fn incomplete(mut self, reason: &str) -> Self {
        self.ending = Ending::Incomplete(reason.to_owned());
        self
    }

    /// Ends with `response.failed`.
    #[must_use]
    pub fn failed(mut self, code: &str, message: &str) -> Self {
        self.ending = Ending::Failed(json!({"code": code, "message": message}));
        self
    }

    /// Ends the body as if it were whole, without a last event.
    #[must_use]
    pub fn without_completed(mut self) -> Self {
        self.ending = Ending::Missing;
        self
    }

    /// Waits here until `gate` is released.
    #[must_use]
    pub fn stall(self, gate: &Gate) -> Self {
        self.step(Step::Gate(gate.clone()))
    }

    /// Waits here for `time`: a model that thinks. To order events use [`Reply::stall`].
    #[must_use]
    pub fn pause(self, time: Duration) -> Self {
        self.step(Step::Pause(time))
    }

    /// One comment, as keep-alives are.
    #[must_use]
    pub fn comment(self) -> Self {
        self.bytes(": keep-alive\n\n")
    }

    /// Comments, one each `every`, until `gate` is released.
    #[must_use]
    pub fn comments_until(self, every: Duration, gate: &Gate) -> Self {
        self.step(Step::Repeat(b": keep-alive\n\n".to_vec(), every, gate.clone()))
    }

    /// An event as given; its name is its `type`.
    #[must_use]
    pub fn event(self, event: &Value) -> Self {
        self.bytes(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default()))
    }

    /// An event whose data has `bytes` bytes.
    #[must_use]
    pub fn oversized(self, bytes: usize) -> Self {
        self.bytes([b"event: response.output_text.delta\ndata: ".as_slice(), &vec![b'x'; bytes], b"\n\n"].concat())
    }

    /// Bytes as given.
    #[must_use]
    pub fn bytes(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.step(Step::Bytes(bytes.into()))
    }

    /// Closes the connection here, in the middle of the body.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.ending = Ending::Missing;
        self.step(Step::Cut)
    }

    /// Closes the connection inside a character of a delta.
    #[must_use]
    pub fn cut_in_character(self) -> Self {
        self.bytes(b"event: response.output_text.delta\ndata: {\"output_index\":0,\"delta\":\"\xe6\xbc".as_slice())
            .cut()
    }

    /// Sends the body in pieces of `bytes`, each flushed.
    #[must_use]
    pub fn pieces_of(mut self, bytes: usize) -> Self {
        self.piece = Some(bytes.max(1));
        self
    }

    /// Sets a header; `content-length` and `transfer-encoding` are the server's.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(key, _)| key != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The answer to what is no model request.
    pub(super) fn lookup(request: &Request) -> Self {
        if request.method == "GET" && request.route().ends_with("/models") {
            // `data` as OpenAI has it, `models` as Codex asks for it.
            let body = json!({"object": "list", "data": [{"id": "fake-1", "object": "model", "owned_by": "fake"}], "models": []});
            return Self::status("200 OK").header("content-type", "application/json").bytes(body.to_string());
        }
        Self::error("404 Not Found", "not_found", "the fake model does not serve this path")
    }

    /// The answer to a request that nobody expected; not worth a retry.
    pub(super) fn unscripted() -> Self {
        Self::error("400 Bad Request", "unscripted", "the fake model has no reply for this request")
    }

    /// Every step, the ending included.
    pub(super) fn into_steps(self) -> Vec<Step> {
        let this = self.close_message();
        let response = |status: &str, more: (&str, Value)| {
            let mut response = json!({"id": "resp_fake", "object": "response", "status": status, "output": this.output, "usage": this.usage});
            response[more.0] = more.1;
            json!({"type": format!("response.{status}"), "response": response})
        };
        let last = match this.ending.clone() {
            Ending::Missing => return this.steps,
            Ending::Completed => response("completed", ("error", Value::Null)),
            Ending::Incomplete(reason) => response("incomplete", ("incomplete_details", json!({"reason": reason}))),
            Ending::Failed(error) => response("failed", ("error", error)),
        };
        this.event(&last).steps
    }

    fn close_message(mut self) -> Self {
        let Some(text) = self.message.take() else { return self };
        let index = self.output.len();
        let id = format!("msg_{index}");
        let part = json!({"type": "output_text", "text": text, "annotations": []});
        let item = json!({"id": id, "type": "message", "status": "completed", "role": "assistant", "content": [part]});
        self.output.push(item.clone());
        self.event(&json!({"type": "response.output_text.done", "item_id": id, "output_index": index, "content_index": 0, "text": text}))
            .event(&json!({"type": "response.content_part.done", "item_id": id, "output_index": index, "content_index": 0, "part": part}))
            .event(&json!({"type": "response.output_item.done", "output_index": index, "item": item}))
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

fn usage(input: u64, output: u64, cached: u64) -> Value {
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + output,
    })
}
