//! The Responses API of `OpenAI` and of everything that speaks it.
//!
//! One request is a few attempts: [`request`] makes the body, [`super::http`] sends it,
//! [`super::sse`] cuts the stream into events, [`event`] reads each, [`assembly`] puts them
//! together. Nothing of a response leaves here before it is whole, its text excepted.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION, RETRY_AFTER};
use tokio::sync::mpsc;

use self::assembly::Assembly;
use self::event::Event;
use super::failure::{About, Failure, Lost, Report};
use super::http::Http;
use super::retry::{self, Plan};
use super::sse::{self, SseError};
use super::watchdog::Watchdog;
use super::{Provider, ProviderError, Request, Response, Settings, StreamEvent};

mod assembly;
mod event;
mod request;

/// Most that is read of a body that is no stream.
const ERROR_BODY_BYTES: usize = 64 << 10;

/// One endpoint. It costs nothing until its first request.
#[derive(Debug)]
pub(crate) struct Responses {
    settings: Settings,
    http: Http,
    /// Cleared by an endpoint that refuses to send reasoning in a repeatable form.
    encrypted_reasoning: Cell<bool>,
}

impl Responses {
    /// The endpoint of `settings`.
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, http: Http::default(), encrypted_reasoning: Cell::new(true) }
    }

    async fn run(&self, request: Request, events: mpsc::Sender<StreamEvent>) -> Result<Response, ProviderError> {
        let about = About { settings: &self.settings, model: &request.model };
        let watchdog = Watchdog::start(self.settings.timeout, self.settings.event_idle);
        let mut body = self.body(&request);
        let mut retries = 0;
        loop {
            let mut assembly = Assembly::new(&self.settings);
            let failure = match self.attempt(body.clone(), &mut assembly, &watchdog, &events).await {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            if failure.is_include_refused() && self.encrypted_reasoning.replace(false) {
                body = self.body(&request);
                continue;
            }
            let plan = retry::plan(failure.outlook(), retries, self.settings.max_retries, jitter());
            let wait = match plan {
                Plan::Again(wait) if !assembly.has_output() && watchdog.allows(wait) => wait,
                _ => return Err(failure.into_error(&about, retries)),
            };
            retries += 1;
            let (what, seconds) = (failure.what(&about), wait.as_secs_f64());
            let notice = format!("{what}; trying again in {seconds:.1} s ({retries} of {})", self.settings.max_retries);
            tracing::info!("{notice}");
            // A reader that left does not stop the turn.
            let _ = watchdog.within(events.send(StreamEvent::Retrying { notice })).await;
            tokio::time::sleep(wait).await;
        }
    }

    fn body(&self, request: &Request) -> Bytes {
        let options = request::Options {
            encrypted_reasoning: self.encrypted_reasoning.get(),
            effort: self.settings.reasoning_effort.as_deref(),
        };
        request::body(request, options)
    }

    async fn attempt(
        &self,
        body: Bytes,
        assembly: &mut Assembly,
        watchdog: &Watchdog,
        events: &mpsc::Sender<StreamEvent>,
    ) -> Result<Response, Failure> {
        let head = watchdog.event(self.http.post(&self.settings, body)).await.map_err(Failure::Expired)??;
        let head = self.check(head, watchdog).await?;
        let mut stream = std::pin::pin!(sse::events(head.bytes_stream()));
        loop {
            let next = async {
                loop {
                    let event = stream.next().await.ok_or(Failure::Cut)?.map_err(unreadable)?;
                    match event::parse(&event.event, &event.data).map_err(Failure::Garbage)? {
                        Event::KeepAlive => {}
                        event => return Ok(event),
                    }
                }
            };
            let event = watchdog.event(next).await.map_err(Failure::Expired)??;
            let added = assembly.add(event)?;
            if let Some(text) = added.text.filter(|text| !text.is_empty()) {
                let sent = events.send(StreamEvent::Text(text));
                // A slow reader slows the stream down, but not beyond the request's deadline.
                let _ = watchdog.within(sent).await.map_err(Failure::Expired)?;
            }
            if let Some(response) = added.finished {
                return Ok(response);
            }
        }
    }

    /// Lets an event stream through; anything else is a failure with what it says.
    async fn check(&self, head: reqwest::Response, watchdog: &Watchdog) -> Result<reqwest::Response, Failure> {
        let content_type = header(head.headers(), CONTENT_TYPE.as_str()).unwrap_or_default().to_owned();
        let is_stream = content_type.is_empty() || content_type.to_ascii_lowercase().starts_with("text/event-stream");
        if head.status().is_success() && is_stream {
            return Ok(head);
        }
        let status = head.status();
        let wait = retry::header_wait(
            header(head.headers(), "retry-after-ms"),
            header(head.headers(), RETRY_AFTER.as_str()),
            SystemTime::now(),
        );
        let location = header(head.headers(), LOCATION.as_str()).map(super::http::shown);
        let body = watchdog.event(start_of(head)).await.unwrap_or_default();
        let text = self.settings.mask().apply(&String::from_utf8_lossy(&body)).into_owned();
        tracing::debug!(status = status.as_u16(), body = text, "the provider answered with no event stream");
        let mut report = event::report_of_body(&body);
        if status.is_redirection() {
            report = Report { code: String::new(), message: location.unwrap_or_default() };
        }
        if status.is_success() {
            return Err(Failure::NoStream { content_type, report });
        }
        Err(Failure::Status { status: status.as_u16(), report, wait })
    }
}

impl Provider for Responses {
    fn respond(
        &self,
        request: Request,
        events: mpsc::Sender<StreamEvent>,
    ) -> LocalBoxFuture<'_, Result<Response, ProviderError>> {
        Box::pin(self.run(request, events))
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The start of a body; what cannot be read is left out.
async fn start_of(mut head: reqwest::Response) -> BytesMut {
    let mut body = BytesMut::new();
    while body.len() < ERROR_BODY_BYTES {
        let Ok(Some(chunk)) = head.chunk().await else { break };
        body.extend_from_slice(&chunk[..chunk.len().min(ERROR_BODY_BYTES - body.len())]);
    }
    body
}

fn unreadable(error: SseError<reqwest::Error>) -> Failure {
    use shared::protocol::{ErrorCode, limits};

    match error {
        SseError::TooLarge => {
            let message = format!("an event of the provider exceeds {} bytes", limits::SSE_EVENT_BYTES);
            Failure::TooMuch(ErrorCode::ResponseLimit, message)
        }
        SseError::NotText => Failure::Garbage("a stream that is no UTF-8 text".to_owned()),
        SseError::Body(error) => match Lost::of(&error) {
            Lost::Other(_) => Failure::Cut,
            lost => Failure::Lost(lost),
        },
    }
}

/// In `0.0..1.0`. Each `RandomState` has keys of its own; nothing here needs more than that.
fn jitter() -> f64 {
    let random = u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or_default();
    f64::from(random) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
