use std::future::Future;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::UnixListener;

use super::*;

/// A home whose socket's path is longer than `sun_path`, and a server that plays `script`.
async fn against<S, F, T>(script: S, client: impl AsyncFnOnce(&Layout) -> T) -> T
where
    S: FnOnce(BufReader<UnixStream>) -> F,
    F: Future<Output = ()>,
{
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::open(&dir.path().join("h".repeat(120))).unwrap();
    std::fs::create_dir(layout.state()).unwrap();
    let address = SocketAddress::of(&layout.socket()).unwrap();
    let listener = UnixListener::bind(address.path()).unwrap();
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        script(BufReader::new(stream)).await;
    };
    tokio::join!(server, client(&layout)).1
}

async fn expect(stream: &mut BufReader<UnixStream>, part: &str) {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    assert!(line.contains(part), "{line}");
}

async fn say(stream: &mut BufReader<UnixStream>, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

const HELLO: &str = concat!(
    r#"{"type":"initialized","request_id":"r1","protocol_version":3,"server":{"name":"scvd","version":"9.9.9"},"#,
    r#""features":["attach"]}"#,
    "\n"
);

#[tokio::test]
async fn a_long_path_is_reached_and_a_request_gets_its_own_answer() {
    let script = async |mut stream: BufReader<UnixStream>| {
        expect(&mut stream, "\"protocol_version\":3").await;
        say(&mut stream, HELLO).await;
        expect(&mut stream, "\"action\":\"status\"").await;
        say(&mut stream, "{\"type\":\"from.the.future\"}\n").await;
        say(&mut stream, "{\"type\":\"error\",\"request_id\":\"r9\",\"code\":\"unavailable\",\"message\":\"m\"}\n")
            .await;
        say(&mut stream, "{\"type\":\"daemon.status\",\"request_id\":\"r2\",\"status\":{\"pid\":42}}\n").await;
    };
    against(script, async |layout| {
        let mut client = Client::connect(layout, "test", &["attach", "watch"]).await.unwrap();
        assert_eq!(client.server().version, "9.9.9");
        assert!(client.has("attach") && !client.has("watch"));
        assert_eq!(client.control(Command::Status).await.unwrap().pid, 42);
        assert!(client.next_event().await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn a_home_without_a_supervisor_is_told_from_one_that_cannot_be_reached() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::open(&dir.path().join("home")).unwrap();
    let none = Client::connect(&layout, "test", &[]).await.unwrap_err();
    assert!(matches!(none, ClientError::NotRunning { .. }), "{none:?}");
    std::fs::create_dir(layout.state()).unwrap();
    drop(UnixListener::bind(layout.socket()).unwrap());
    let stale = Client::connect(&layout, "test", &[]).await.unwrap_err();
    assert!(matches!(stale, ClientError::NotRunning { .. }), "{stale:?}");
}

#[tokio::test]
async fn another_protocol_is_told_in_the_servers_words() {
    let script = async |mut stream: BufReader<UnixStream>| {
        expect(&mut stream, "initialize").await;
        let refusal = r#"{"type":"error","code":"version_mismatch","message":"this server speaks 4","fatal":true}"#;
        say(&mut stream, &format!("{refusal}\n")).await;
    };
    let error = against(script, async |layout| Client::connect(layout, "test", &[]).await.unwrap_err()).await;
    assert_eq!(error.to_string(), "this server speaks 4");
}

#[tokio::test]
async fn a_frame_over_the_limit_is_an_error_and_takes_no_memory() {
    let script = async |mut stream: BufReader<UnixStream>| {
        expect(&mut stream, "initialize").await;
        say(&mut stream, HELLO).await;
        let piece = vec![b'x'; 1 << 20];
        // The client leaves as soon as the limit is passed.
        for _ in 0..10 {
            if stream.write_all(&piece).await.is_err() {
                break;
            }
        }
    };
    let error = against(script, async |layout| {
        let mut client = Client::connect(layout, "test", &[]).await.unwrap();
        client.next_event().await.unwrap_err()
    })
    .await;
    assert!(matches!(error, ClientError::TooLong), "{error:?}");
}

#[tokio::test]
async fn a_request_over_the_limit_is_never_sent() {
    let script = async |mut stream: BufReader<UnixStream>| {
        expect(&mut stream, "initialize").await;
        say(&mut stream, HELLO).await;
    };
    let error = against(script, async |layout| {
        let mut client = Client::connect(layout, "test", &[]).await.unwrap();
        let handle = Some("h".repeat(limits::CLIENT_FRAME_BYTES));
        client.control(Command::DelegationKill { handle, orphans: false }).await.unwrap_err()
    })
    .await;
    assert!(matches!(error, ClientError::RequestTooLong { .. }), "{error:?}");
}
