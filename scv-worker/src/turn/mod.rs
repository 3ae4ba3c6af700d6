//! One turn: request, response, calls, until the model is done.
//!
//! A turn owns its copy of the conversation and tells the session everything through a [`Sink`];
//! it never touches the journal or a client.

mod dispatch;
pub(crate) mod prompt;
pub(crate) mod sink;

use std::rc::Rc;

use serde_json::Value;
use shared::config::ApprovalPolicy;
use shared::protocol::ErrorCode;
use shared::protocol::server::{TurnBody, Usage};
use shared::secret::Mask;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::provider::{Item, Provider, Request, Response, StreamEvent, ToolSpec};
use crate::tools::Toolbox;
use sink::{Gone, Sink};

/// Text pieces that wait for the session; a full channel slows the provider's stream down.
const WAITING_PIECES: usize = 64;

/// Everything that a turn needs.
pub(crate) struct Turn {
    /// The conversation, ending with the prompt.
    pub items: Vec<Rc<Item>>,
    /// The model.
    pub model: String,
    /// The system prompt.
    pub instructions: Rc<str>,
    /// The model's endpoint.
    pub provider: Rc<dyn Provider>,
    /// The tools on offer.
    pub tools: Rc<Toolbox>,
    /// Who decides on calls.
    pub policy: ApprovalPolicy,
    /// Values that nobody may see, the model included.
    pub mask: Rc<Mask>,
    /// Responses at most.
    pub max_steps: u32,
    /// Set when the turn has to end.
    pub cancel: CancellationToken,
}

/// Why a turn stopped before its model was done.
enum Stop {
    Cancelled,
    Failed(ErrorCode, String),
    Gone,
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl Turn {
    /// Runs the turn to its end and tells how it ended.
    pub(crate) async fn run(mut self, sink: Sink) {
        let specs = self.tools.specs();
        let body = match self.steps(&sink, &specs).await {
            Ok(body) => body,
            Err(Stop::Cancelled) => TurnBody::Cancelled {},
            Err(Stop::Failed(code, message)) => TurnBody::Failed { code, message, origin: None },
            // The session has ended this turn by itself and said why.
            Err(Stop::Gone) => return,
        };
        sink.end(body).await;
    }

    async fn steps(&mut self, sink: &Sink, specs: &Rc<[ToolSpec]>) -> Result<TurnBody, Stop> {
        let mut total = Usage::default();
        for step in 1..=self.max_steps {
            let response = self.ask_model(sink, specs).await?;
            total = total.plus(response.usage);
            let calls = self.keep(sink, response).await?;
            if calls.is_empty() {
                return Ok(TurnBody::Completed { steps: step, usage: total, origin: None });
            }
            // One at a time: a later call may rest on what an earlier one changed.
            for call in calls {
                if self.cancel.is_cancelled() {
                    return Err(Stop::Cancelled);
                }
                let output = dispatch::run(&call, self, sink).await?;
                self.items.push(Rc::new(Item::Output { call_id: call.call_id, output }));
            }
            if self.cancel.is_cancelled() {
                return Err(Stop::Cancelled);
            }
        }
        Err(Stop::Failed(
            ErrorCode::StepLimit,
            format!("the turn took {} responses, which is agent.max_steps; say \"go on\" to continue", self.max_steps),
        ))
    }

    async fn ask_model(&self, sink: &Sink, specs: &Rc<[ToolSpec]>) -> Result<Response, Stop> {
        let (events_in, mut events) = mpsc::channel(WAITING_PIECES);
        let request = Request {
            model: self.model.clone(),
            instructions: self.instructions.to_string(),
            items: self.items.clone(),
            tools: specs.clone(),
        };
        let mut response = self.provider.respond(request, events_in);
        let mut streaming = true;
        loop {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(Stop::Cancelled),
                event = events.recv(), if streaming => match event {
                    Some(StreamEvent::Text(content)) => sink.show(TurnBody::AssistantDelta { content }).await?,
                    Some(StreamEvent::Retrying { notice }) => sink.notice(&self.mask.apply(&notice)).await?,
                    None => streaming = false,
                },
                done = &mut response => {
                    // The provider knows its own key; a relay may repeat another's.
                    let done = done.map_err(|error| Stop::Failed(error.code, self.mask.apply(&error.message).into_owned()))?;
                    // What was sent before the end may still wait in the channel.
                    while let Ok(event) = events.try_recv() {
                        if let StreamEvent::Text(content) = event {
                            sink.show(TurnBody::AssistantDelta { content }).await?;
                        }
                    }
                    return Ok(done);
                }
            }
        }
    }

    /// Keeps a response, tells what it says, and gives its calls.
    async fn keep(&mut self, sink: &Sink, response: Response) -> Result<Vec<Call>, Stop> {
        let mut text = String::new();
        let mut calls = Vec::new();
        for item in &response.items {
            match item {
                Item::Assistant { text: part } => text.push_str(part),
                Item::Call { call_id, name, arguments } => {
                    calls.push(Call { call_id: call_id.clone(), name: name.clone(), arguments: arguments.clone() });
                }
                Item::User { .. } | Item::Note { .. } | Item::Output { .. } | Item::Opaque { .. } => {}
            }
        }
        if let Some(reason) = &response.incomplete {
            // The user has to see that the answer is not whole.
            let mark = format!("\n[the model stopped early: {reason}]");
            sink.show(TurnBody::AssistantDelta { content: mark.clone() }).await?;
            text.push_str(&mark);
        }
        let mut told = vec![TurnBody::AssistantCompleted { content: text }];
        told.extend(calls.iter().map(Call::proposed));
        self.items.extend(response.items.iter().cloned().map(Rc::new));
        sink.response(response.items, response.usage, told).await?;
        Ok(calls)
    }
}

/// A call of the model.
#[derive(Clone, Debug)]
struct Call {
    call_id: String,
    name: String,
    arguments: String,
}

impl Call {
    fn proposed(&self) -> TurnBody {
        let arguments = serde_json::from_str(&self.arguments).unwrap_or_else(|_| Value::String(self.arguments.clone()));
        TurnBody::ToolProposed { call_id: self.call_id.clone(), name: self.name.clone(), arguments }
    }
}

#[cfg(test)]
mod tests;
