//! Model providers: one request in, a stream of text out, one whole response at the end.
//!
//! What a provider needs of the conversation are [`Item`]s; what it gives back are items too, so
//! that the next request can repeat them as they came.

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::protocol::ErrorCode;
use shared::protocol::server::Usage;
use tokio::sync::mpsc;

mod failure;
mod http;
mod redact;
pub(crate) mod responses;
mod retry;
mod settings;
mod sse;
mod watchdog;

pub(crate) use settings::Settings;

/// One part of a conversation, as every provider gets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "item", rename_all = "snake_case")]
pub(crate) enum Item {
    /// What the user said.
    User {
        /// The text.
        text: String,
    },
    /// What SCV tells the model; never the user's or a tool's text.
    Note {
        /// The text.
        text: String,
    },
    /// What the model said.
    Assistant {
        /// The text.
        text: String,
    },
    /// A tool call of the model.
    Call {
        /// Joins it to its output.
        call_id: String,
        /// The tool.
        name: String,
        /// JSON, byte for byte as the model wrote it.
        arguments: String,
    },
    /// What a call gave.
    Output {
        /// Joins it to its call.
        call_id: String,
        /// The text.
        output: String,
    },
    /// What only the provider understands (reasoning); repeated as it came.
    Opaque {
        /// The provider's own item.
        value: Value,
    },
}

/// A tool, as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The model.
    pub model: String,
    /// The system prompt.
    pub instructions: String,
    /// The conversation.
    pub items: Vec<Rc<Item>>,
    /// The tools on offer.
    pub tools: Rc<[ToolSpec]>,
}

/// What arrives before the response is whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StreamEvent {
    /// The next piece of assistant text.
    Text(String),
    /// Nothing was streamed yet and the request is sent again; for people.
    Retrying {
        /// Why and when, one line.
        notice: String,
    },
}

/// One whole response.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Response {
    /// In the order in which the model made them: opaque, assistant, calls.
    pub items: Vec<Item>,
    /// Tokens.
    pub usage: Usage,
    /// Set where the model stopped before it was done, such as `max_output_tokens`.
    pub incomplete: Option<String>,
}

/// A failed request. `message` is for people: no key, no body of the provider.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ProviderError {
    /// `provider_error`, `response_limit`, `tool_limit`, `context_limit`.
    pub code: ErrorCode,
    /// What happened and what to do; the provider's words are redacted and cut.
    pub message: String,
}

/// A model endpoint. Built on first use.
pub(crate) trait Provider {
    /// Sends `request`; text goes to `events` as it arrives (a full channel slows the stream
    /// down). Dropping the future cancels the request.
    fn respond(
        &self,
        request: Request,
        events: mpsc::Sender<StreamEvent>,
    ) -> LocalBoxFuture<'_, Result<Response, ProviderError>>;
}
