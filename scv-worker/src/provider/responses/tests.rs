//! The provider against a socket that sends the bytes it is told to.

use std::rc::Rc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};
use shared::protocol::server::Usage;
use shared::protocol::{ErrorCode, limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::provider::Item;

mod retries;
mod sentences;
mod stream;

/// What the socket does with one request.
enum Act {
    /// Sends these pieces, each flushed, and closes.
    Send(Vec<Vec<u8>>),
    /// Sends these bytes and keeps the connection.
    Hold(Vec<u8>),
    /// Sends these bytes again and again.
    Repeat(Vec<u8>, Vec<u8>),
    /// Closes at once.
    Close,
}

/// Answers one connection after the other; returns the requests as they came.
async fn serve(listener: TcpListener, acts: Vec<Act>) -> Vec<String> {
    let mut requests = Vec::new();
    let mut held = Vec::new();
    for act in acts {
        let (mut socket, _) = listener.accept().await.unwrap();
        requests.push(read_request(&mut socket).await);
        match act {
            Act::Send(pieces) => {
                socket.set_nodelay(true).unwrap();
                for piece in pieces {
                    if socket.write_all(&piece).await.is_err() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            Act::Hold(bytes) => {
                socket.write_all(&bytes).await.unwrap();
                held.push(socket);
            }
            Act::Repeat(first, bytes) => {
                socket.write_all(&first).await.unwrap();
                while socket.write_all(&bytes).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            Act::Close => {}
        }
    }
    // Until the test is over; it drops this future.
    held.push(listener.accept().await.unwrap().0);
    requests
}

async fn read_request(socket: &mut TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if body.len() >= length.parse().unwrap() {
                return text;
            }
        }
        assert_ne!(socket.read_buf(&mut request).await.unwrap(), 0, "the request was cut");
    }
}

struct Outcome {
    result: Result<Response, ProviderError>,
    text: String,
    notices: Vec<String>,
    requests: Vec<String>,
}

impl Outcome {
    fn failure(&self) -> (ErrorCode, &str) {
        let error = self.result.as_ref().expect_err("it should have failed");
        (error.code, &error.message)
    }
}

async fn run_with(change: impl FnOnce(&mut Settings), acts: Vec<Act>) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut settings = Settings::new("test", &url);
    settings.api_key = Some(SecretString::from("very-secret-key"));
    settings.headers = vec![("x-extra".to_owned(), SecretString::from("extra-secret"))];
    settings.max_retries = 0;
    change(&mut settings);
    let expected = acts.len();
    let (sender, mut receiver) = mpsc::channel(4);
    let request = Request {
        model: "fake-1".to_owned(),
        instructions: String::new(),
        items: vec![Rc::new(Item::User { text: "hello".to_owned() })],
        tools: Rc::new([]),
    };
    let provider = Responses::new(settings);
    let (mut text, mut notices) = (String::new(), Vec::new());
    let client = async {
        let reader = async {
            while let Some(event) = receiver.recv().await {
                match event {
                    StreamEvent::Text(delta) => text.push_str(&delta),
                    StreamEvent::Retrying { notice } => notices.push(notice),
                }
            }
        };
        let (result, ()) = tokio::join!(provider.respond(request, sender), reader);
        // One more connection tells the server that the test is over.
        let _ = TcpStream::connect(url.trim_start_matches("http://").trim_end_matches("/v1")).await;
        result
    };
    let server = serve(listener, acts);
    let (result, requests) = if expected == 0 {
        (client.await, Vec::new())
    } else {
        tokio::pin!(client, server);
        tokio::select! {
            (result, requests) = async { tokio::join!(&mut client, &mut server) } => (result, requests),
            () = tokio::time::sleep(Duration::from_secs(30)) => panic!("no end after 30 s"),
        }
    };
    Outcome { result, text, notices, requests }
}

async fn run(acts: Vec<Act>) -> Outcome {
    run_with(|_| (), acts).await
}

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

fn stream(body: &str) -> Act {
    Act::Send(vec![format!("{STREAM}{body}").into_bytes()])
}

fn status(line: &str, headers: &str, body: &str) -> Act {
    let text = format!("HTTP/1.1 {line}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
    Act::Send(vec![text.into_bytes()])
}

fn sse(events: &[Value]) -> String {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(event).collect()
}

fn delta(text: &str) -> Value {
    json!({"type": "response.output_text.delta", "output_index": 0, "delta": text})
}

fn completed() -> Value {
    let usage = json!({"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 5}});
    json!({"type": "response.completed", "response": {"status": "completed", "output": [], "usage": usage}})
}

fn error_body(code: &str, message: &str) -> String {
    json!({"error": {"code": code, "type": "t", "message": message, "param": null}}).to_string()
}
