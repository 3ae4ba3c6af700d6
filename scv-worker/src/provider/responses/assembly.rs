//! Puts a response together from its events, within its limits. Pure.
//!
//! Limits count what they name: decoded text and arguments, not the bytes that carried them.

use std::collections::BTreeMap;

use serde_json::Value;
use shared::protocol::{ErrorCode, limits};

use super::event::{Event, Finished};
use crate::provider::failure::Failure;
use crate::provider::{Item, Response, Settings};

/// Items of one response; more than calls and messages can use.
const ITEMS: usize = 1024;

/// A response that is not whole yet.
#[derive(Debug)]
pub(super) struct Assembly {
    max_calls: usize,
    max_arguments: usize,
    slots: BTreeMap<u32, Slot>,
    text: usize,
    arguments: usize,
    opaque: usize,
    calls: usize,
}

/// The item at one index.
#[derive(Debug, Default)]
struct Slot {
    /// Text that came in deltas.
    streamed: String,
    /// Bytes of arguments counted so far.
    arguments: usize,
    is_call: bool,
    item: Option<Item>,
}

/// What an event adds.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Added {
    /// Text to show.
    pub text: Option<String>,
    /// Set with the last event.
    pub finished: Option<Response>,
}

impl Assembly {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            max_calls: settings.max_tool_calls,
            max_arguments: settings.max_tool_arguments_bytes,
            slots: BTreeMap::new(),
            text: 0,
            arguments: 0,
            opaque: 0,
            calls: 0,
        }
    }

    /// Whether the model's answer has begun; then the request is not sent again.
    pub(super) fn has_output(&self) -> bool {
        self.text + self.arguments + self.calls > 0
    }

    /// Takes the next event.
    pub(super) fn add(&mut self, event: Event) -> Result<Added, Failure> {
        let mut added = Added::default();
        match event {
            Event::Text { index, delta } => {
                self.slot(index)?.streamed.push_str(&delta);
                self.count_text(delta.len())?;
                added.text = Some(delta);
            }
            Event::Arguments { index, bytes } => {
                let counted = self.slot(index)?.arguments + bytes;
                self.count_arguments(index, counted)?;
            }
            Event::CallAdded { index } => self.count_call(index)?,
            Event::Done { index, item } => added.text = self.done(index, item)?,
            Event::Finished(finished) => {
                added.text = self.take_output(&finished)?;
                added.finished = Some(self.finish(finished));
            }
            Event::Failed(report) => return Err(Failure::Reported(report)),
            Event::Other | Event::KeepAlive => {}
        }
        Ok(added)
    }

    /// Takes a whole item; returns its text where none of it came in deltas.
    fn done(&mut self, index: u32, mut value: Value) -> Result<Option<String>, Failure> {
        let index = self.free_index(index);
        match value["type"].as_str() {
            Some("message") => {
                let text = message_text(&value);
                let slot = self.slot(index)?;
                let fresh = text.len().saturating_sub(slot.streamed.len());
                let unseen = (slot.streamed.is_empty() && !text.is_empty()).then(|| text.clone());
                if !text.is_empty() {
                    slot.streamed = String::new();
                    slot.item = Some(Item::Assistant { text });
                }
                self.count_text(fresh)?;
                Ok(unseen)
            }
            Some("function_call") => {
                self.count_call(index)?;
                // The model was cut off inside the arguments: never to be run.
                if value["status"] == "incomplete" {
                    return Ok(None);
                }
                let call = call(&mut value)?;
                if let Item::Call { arguments, .. } = &call {
                    self.count_arguments(index, arguments.len())?;
                }
                if self.slots.values().any(|slot| is_same_call(slot.item.as_ref(), &call)) {
                    return Err(Failure::Garbage("two tool calls with the same call_id".to_owned()));
                }
                self.slot(index)?.item = Some(call);
                Ok(None)
            }
            _ => {
                self.opaque += value.to_string().len();
                if self.opaque > limits::RESPONSE_BYTES {
                    return Err(too_large("reasoning of a response", limits::RESPONSE_BYTES));
                }
                self.slot(index)?.item = Some(Item::Opaque { value });
                Ok(None)
            }
        }
    }

    /// Some servers send whole items with the last event only.
    fn take_output(&mut self, finished: &Finished) -> Result<Option<String>, Failure> {
        if self.slots.values().any(|slot| slot.item.is_some()) {
            return Ok(None);
        }
        let mut unseen = String::new();
        for (index, item) in (0..).zip(&finished.output) {
            unseen.push_str(&self.done(index, item.clone())?.unwrap_or_default());
        }
        Ok((!unseen.is_empty()).then_some(unseen))
    }

    fn finish(&mut self, finished: Finished) -> Response {
        let slots = std::mem::take(&mut self.slots);
        let items = slots.into_values().filter_map(|slot| {
            // Text that people saw is part of the answer, also where its whole item never came.
            let streamed = (!slot.streamed.is_empty()).then_some(Item::Assistant { text: slot.streamed });
            slot.item.or(streamed)
        });
        Response { items: items.collect(), usage: finished.usage, incomplete: finished.incomplete }
    }

    fn slot(&mut self, index: u32) -> Result<&mut Slot, Failure> {
        if self.slots.len() >= ITEMS && !self.slots.contains_key(&index) {
            let message = format!("a response with more than {ITEMS} items");
            return Err(Failure::TooMuch(ErrorCode::ResponseLimit, message));
        }
        Ok(self.slots.entry(index).or_default())
    }

    /// `index`, or the next one that has no whole item: servers that count wrongly lose nothing.
    fn free_index(&self, index: u32) -> u32 {
        let is_free = |index: &u32| self.slots.get(index).is_none_or(|slot| slot.item.is_none());
        (index..=u32::MAX).find(is_free).unwrap_or(index)
    }

    fn count_text(&mut self, bytes: usize) -> Result<(), Failure> {
        self.text += bytes;
        if self.text > limits::ASSISTANT_BYTES {
            return Err(too_large("text of a response", limits::ASSISTANT_BYTES));
        }
        self.check_whole()
    }

    /// The arguments of the call at `index` are at least `bytes` long.
    fn count_arguments(&mut self, index: u32, bytes: usize) -> Result<(), Failure> {
        let slot = self.slot(index)?;
        let fresh = bytes.saturating_sub(slot.arguments);
        slot.arguments = slot.arguments.max(bytes);
        self.arguments += fresh;
        if bytes > self.max_arguments {
            let message =
                format!("arguments of a tool call exceed {} bytes (`max_tool_arguments_bytes`)", self.max_arguments);
            return Err(Failure::TooMuch(ErrorCode::ToolLimit, message));
        }
        self.check_whole()
    }

    fn count_call(&mut self, index: u32) -> Result<(), Failure> {
        let slot = self.slot(index)?;
        let is_new = !slot.is_call;
        slot.is_call = true;
        self.calls += usize::from(is_new);
        if self.calls > self.max_calls {
            let message = format!("more than {} tool calls in a response (`max_tool_calls`)", self.max_calls);
            return Err(Failure::TooMuch(ErrorCode::ToolLimit, message));
        }
        Ok(())
    }

    fn check_whole(&self) -> Result<(), Failure> {
        if self.text + self.arguments > limits::RESPONSE_BYTES {
            return Err(too_large("text and arguments of a response", limits::RESPONSE_BYTES));
        }
        Ok(())
    }
}

fn too_large(what: &str, bytes: usize) -> Failure {
    Failure::TooMuch(ErrorCode::ResponseLimit, format!("{what} over {bytes} bytes"))
}

fn message_text(value: &Value) -> String {
    let parts = value["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter_map(|part| part["text"].as_str().or_else(|| part["refusal"].as_str())).collect()
}

fn call(value: &mut Value) -> Result<Item, Failure> {
    let mut take = |key: &str| match value[key].take() {
        Value::String(text) => Some(text),
        _ => None,
    };
    let (call_id, name, arguments) = (take("call_id"), take("name"), take("arguments"));
    match (call_id, name) {
        (Some(call_id), Some(name)) if !call_id.is_empty() && !name.is_empty() => {
            Ok(Item::Call { call_id, name, arguments: arguments.unwrap_or_default() })
        }
        _ => Err(Failure::Garbage("a tool call without call_id or name".to_owned())),
    }
}

fn is_same_call(item: Option<&Item>, call: &Item) -> bool {
    match (item, call) {
        (Some(Item::Call { call_id: one, .. }), Item::Call { call_id: other, .. }) => one == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
