//! The demo's model: the Responses API over loopback HTTP, slow enough to watch.

use std::convert::Infallible;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::script::{self, Answer};

/// A request holds the whole conversation of a short story.
const REQUEST_BYTES: usize = 1 << 20;

/// Between two words, so that a person sees them come.
const WORD_EVERY: Duration = Duration::from_millis(25);

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

/// Serves until standard input ends, so that it never outlives the demo. The first line on
/// standard output is JSON: the base URL, and the agent that its story hands work to.
pub(crate) async fn run() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on loopback")?;
    let mut stdout = std::io::stdout();
    let url = format!("http://{}/v1", listener.local_addr()?);
    writeln!(stdout, "{}", json!({"url": url, "agent": super::agent::ADAPTER}))?;
    stdout.flush()?;
    let mut stdin = tokio::io::stdin();
    let mut ignored = [0; 64];
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                tokio::task::spawn_local(serve(stream));
            }
            read = stdin.read(&mut ignored) => if !matches!(read, Ok(1..)) {
                return Ok(());
            }
        }
    }
}

async fn serve(stream: TcpStream) {
    let service = service_fn(|request| async { Ok::<_, Infallible>(respond(request).await) });
    // A client that goes away in the middle of an answer is part of the story.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(request: Request<Incoming>) -> Response<Body> {
    if request.method() != Method::POST || request.uri().path() != "/v1/responses" {
        return plain(StatusCode::NOT_FOUND, "this model answers POST /v1/responses");
    }
    let body = Limited::new(request.into_body(), REQUEST_BYTES).collect().await;
    let Some(input) = body.ok().and_then(|body| input(&body.to_bytes())) else {
        return plain(StatusCode::BAD_REQUEST, "the body is no request with an input");
    };
    let frames = frames(&script::answer(&input));
    let stream = futures_util::stream::unfold(frames.into_iter(), |mut frames| async {
        let frame = frames.next()?;
        tokio::time::sleep(WORD_EVERY).await;
        Some((Ok(Frame::data(Bytes::from(frame))), frames))
    });
    let mut response = Response::new(StreamBody::new(stream).boxed_unsync());
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("text/event-stream"));
    response
}

fn input(body: &[u8]) -> Option<Vec<Value>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    body["input"].as_array().cloned()
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// The server-sent events of an answer.
fn frames(answer: &Answer) -> Vec<String> {
    let mut events = vec![json!({"type": "response.created", "response": {"id": "demo"}})];
    let message = json!({"type": "message", "id": "m", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": answer.text, "annotations": []}]});
    events.push(json!({"type": "response.output_item.added", "output_index": 0, "item": message_head()}));
    for word in answer.text.split_inclusive(' ') {
        let delta = json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 0,
            "content_index": 0, "delta": word});
        events.push(delta);
    }
    events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": message}));
    let mut output = vec![message];
    if let Some((tool, arguments)) = &answer.call {
        let call = json!({"type": "function_call", "id": "f", "call_id": uuid::Uuid::now_v7().to_string(),
            "name": tool, "arguments": arguments.to_string(), "status": "completed"});
        events.push(json!({"type": "response.output_item.added", "output_index": 1, "item": call}));
        events.push(json!({"type": "response.output_item.done", "output_index": 1, "item": call}));
        output.push(call);
    }
    let usage = json!({"input_tokens": 40, "output_tokens": answer.text.split(' ').count()});
    events.push(json!({"type": "response.completed",
        "response": {"id": "demo", "status": "completed", "output": output, "usage": usage}}));
    events
        .into_iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default()))
        .collect()
}

fn message_head() -> Value {
    json!({"type": "message", "id": "m", "role": "assistant", "status": "in_progress", "content": []})
}
