use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

async fn connect(model: &Model) -> TcpStream {
    TcpStream::connect(model.address).await.unwrap()
}

async fn ask(socket: &mut TcpStream, prompt: &str) {
    let body = json!({"model": "fake-1", "input": [{"role": "user", "content": [{"text": prompt}]}]}).to_string();
    let head = format!("POST /v1/responses HTTP/1.1\r\nContent-Length: {}\r\nUser-Agent: test\r\n\r\n", body.len());
    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
}

/// Everything up to the end of the body or of the connection.
async fn answer(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n0\r\n\r\n") && socket.read_buf(&mut bytes).await.unwrap() > 0 {}
    String::from_utf8_lossy(&bytes).into_owned()
}

fn events(answer: &str) -> Vec<&str> {
    answer.lines().filter_map(|line| line.strip_prefix("event: ")).collect()
}

#[tokio::test]
async fn a_reply_is_a_whole_response() {
    let model = Model::start().await;
    model.push(Reply::new().reasoning("hm").deltas(["a", "b"]).call("read", &json!({"path": "x"})).usage(7, 3, 5));
    let mut socket = connect(&model).await;
    ask(&mut socket, "go").await;
    let answer = answer(&mut socket).await;
    let names: Vec<&str> = events(&answer).iter().map(|name| name.trim_start_matches("response.")).collect();
    let expected = "created in_progress output_item.added output_item.done \
        output_item.added content_part.added output_text.delta output_text.delta output_text.done content_part.done output_item.done \
        output_item.added function_call_arguments.delta function_call_arguments.done output_item.done completed";
    assert_eq!(names, expected.split_whitespace().collect::<Vec<_>>());
    assert!(answer.contains(r#""call_id":"call_2""#) && answer.contains(r#""cached_tokens":5"#), "{answer}");
    assert_eq!(model.next_request().await.prompt(), "go");
    assert_eq!(model.unused(), 0);
}

#[tokio::test]
async fn routes_come_before_the_queue_and_a_connection_serves_many() {
    let model = Model::start().await;
    model.script([Reply::text("one"), Reply::text("two")]);
    model.route(|request| request.prompt() == "other", [Reply::text("routed")]);
    let mut socket = connect(&model).await;
    for (prompt, expected) in [("x", "one"), ("other", "routed"), ("x", "two"), ("other", "unscripted")] {
        ask(&mut socket, prompt).await;
        let answer = answer(&mut socket).await;
        assert!(answer.contains(expected), "{answer}");
    }
    let prompts: Vec<String> = model.requests().await.iter().map(Request::prompt).collect();
    assert_eq!(prompts, ["x", "other", "x", "other"]);
}

#[tokio::test]
async fn a_gate_holds_one_reply_and_not_the_others() {
    let model = Model::start().await;
    let gate = Gate::new();
    model.script([Reply::text("a").stall(&gate).delta("b"), Reply::text("free")]);
    let (mut held, mut free) = (connect(&model).await, connect(&model).await);
    ask(&mut held, "1").await;
    gate.reached().await;
    ask(&mut free, "2").await;
    assert!(answer(&mut free).await.contains("free"));
    gate.release();
    assert!(events(&answer(&mut held).await).ends_with(&["response.completed"]));
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed() {
    let model = Model::start().await;
    let (gate, comments) = (Gate::new(), Gate::new());
    model.script([Reply::text("a").stall(&gate), Reply::new().comments_until(Duration::from_millis(1), &comments)]);
    for gate in [gate, comments] {
        let mut socket = connect(&model).await;
        ask(&mut socket, "x").await;
        gate.reached().await;
        drop(socket);
        gate.left().await;
    }
}

#[tokio::test]
async fn faults_are_on_the_wire() {
    let model = Model::start().await;
    let cases = [
        (Reply::text("a").cut(), "}\n\n\r\n", false),
        (Reply::text("a").cut_in_character(), "\"delta\":\"\u{fffd}\r\n", false),
        (Reply::text("a").without_completed(), "\r\n0\r\n\r\n", false),
        (Reply::hang_up(), "", false),
        (Reply::html(), "</html>\r\n0\r\n\r\n", false),
        (
            Reply::error("429 Too Many Requests", "rate_limit_exceeded", "slow").header("retry-after", "1"),
            "}}\r\n0\r\n\r\n",
            false,
        ),
        (Reply::text("a").oversized(2000).pieces_of(7), "\r\n0\r\n\r\n", true),
        (Reply::text("a").incomplete("max_output_tokens"), "\r\n0\r\n\r\n", false),
        (Reply::new().failed("server_error", "oh"), "\r\n0\r\n\r\n", false),
    ];
    for (reply, end, is_completed) in cases {
        let shown = format!("{reply:?}");
        model.push(reply);
        let mut socket = connect(&model).await;
        ask(&mut socket, "x").await;
        let answer = answer(&mut socket).await;
        assert!(answer.ends_with(end), "{answer}");
        let plain: String = if is_completed { dechunk(&answer) } else { answer.clone() };
        assert_eq!(plain.contains("response.completed"), is_completed, "{shown}");
    }
}

/// The body of `answer` without its framing.
fn dechunk(answer: &str) -> String {
    let (_, mut rest) = answer.split_once("\r\n\r\n").unwrap();
    let mut body = String::new();
    while let Some((length, tail)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            break;
        }
        body.push_str(&tail[..length]);
        rest = &tail[length + 2..];
    }
    body
}

#[tokio::test]
async fn models_are_listed() {
    let model = Model::start().await;
    let mut socket = connect(&model).await;
    socket.write_all(b"GET /v1/models?client_version=1 HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(answer(&mut socket).await.contains("fake-1"));
    assert_eq!(model.lookups().await.len(), 1);
    assert!(model.requests().await.is_empty());
}
