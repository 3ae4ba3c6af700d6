//! What a person reads when a request fails.

use super::*;

#[tokio::test]
async fn garbage_is_one_clear_sentence() {
    let html = "<html>\n<body>Sign in</body>";
    let cases = [
        (
            status("200 OK", "content-type: text/html\r\n", html),
            "answered with text/html instead of an event stream: check `base_url`",
        ),
        (
            status("200 OK", "content-type: application/json\r\n", &error_body("x", "no such thing.")),
            "answered with application/json instead of an event stream: \"no such thing\": check",
        ),
        (stream("data: <html>\n\n"), "the provider sent garbage: an event that is no JSON object"),
        (stream("event: response.completed\ndata: {\"response\": 7}\n\n"), "garbage: data of response.completed"),
        (stream(html), "stream ended before response.completed"),
        (Act::Send(vec![STREAM.into(), b"data: \xff\xfe\n\n".to_vec()]), "a stream that is no UTF-8 text"),
        (Act::Send(vec![b"220 mail ready\r\n".to_vec()]), "was lost: "),
    ];
    for (act, expected) in cases {
        let outcome = run(vec![act]).await;
        let (code, message) = outcome.failure();
        assert_eq!(code, ErrorCode::ProviderError);
        assert!(message.contains(expected) && !message.contains('\n'), "{message}");
    }
}

#[tokio::test]
async fn a_refusal_says_what_to_do_and_no_secret() {
    let words = "Incorrect key very-secret-key of org-Ab12Cd34,\nextra-secret.";
    let said = "\"Incorrect key [secret] of [secret], [secret]\"";
    let cases = [
        ("400 Bad Request", "x", "the provider refused the request (400): SAID"),
        (
            "401 Unauthorized",
            "x",
            "the provider refused the key (401): SAID: check `api_key` or `api_key_env` of [providers.test]",
        ),
        (
            "403 Forbidden",
            "x",
            "the provider denied access (403): SAID: check what the key of [providers.test] may use",
        ),
        (
            "404 Not Found",
            "x",
            "the endpoint or the model was not found (404): SAID: check `model` (\"fake-1\") and `base_url` (http://127.0.0.1:",
        ),
        ("429 Too Many", "x", "the provider limits requests (429): SAID: try again later"),
        (
            "429 Too Many",
            "insufficient_quota",
            "the account has no quota left (429): SAID: check plan and billing of the account of [providers.test]",
        ),
        ("503 Unavailable", "x", "the provider failed (503): SAID: try again later"),
    ];
    for (line, code, expected) in cases {
        let outcome = run(vec![status(line, "", &error_body(code, words))]).await;
        let (code, message) = outcome.failure();
        assert_eq!(code, ErrorCode::ProviderError);
        let expected = expected.replace("SAID", said);
        assert!(message.starts_with(&expected), "{message}\nis not\n{expected}");
    }
}

#[tokio::test]
async fn a_key_that_is_missing_is_asked_for() {
    let act = status("401 Unauthorized", "", "");
    let outcome = run_with(|settings| settings.api_key = None, vec![act]).await;
    assert_eq!(
        outcome.failure().1,
        "the provider refused the key (401): set `api_key` or `api_key_env` of [providers.test]"
    );
    assert!(!outcome.requests[0].contains("authorization"));
}

#[tokio::test]
async fn a_conversation_that_is_too_long_has_its_own_code() {
    for act in [
        status("400 Bad Request", "", &error_body("context_length_exceeded", "too long")),
        stream(&sse(&[json!({"type": "error", "code": "context_length_exceeded", "message": "too long"})])),
    ] {
        assert_eq!(run(vec![act]).await.failure().0, ErrorCode::ContextLimit);
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let act = status("307 Temporary Redirect", "location: http://127.0.0.1:1/elsewhere?key=k\r\n", "");
    let outcome = run(vec![act]).await;
    let expected =
        "the endpoint redirects, which is not followed (307): \"http://127.0.0.1:1/elsewhere\": set `base_url`";
    assert!(outcome.failure().1.starts_with(expected), "{}", outcome.failure().1);
}

#[tokio::test]
async fn nobody_at_the_address_is_said() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let outcome = run_with(|settings| settings.base_url = format!("http://{closed}/v1"), vec![]).await;
    let expected =
        format!("nothing listens at http://{closed}/v1 (connection refused): check `base_url` of [providers.test]");
    assert_eq!(outcome.failure().1, expected);
}

#[tokio::test]
async fn a_name_without_an_address_and_a_plain_port_under_tls_are_said() {
    // A label of more than 63 bytes is refused by the resolver itself: no name server is asked.
    let nowhere = format!("http://{}.invalid/v1", "x".repeat(64));
    let outcome = run_with(|settings| settings.base_url = nowhere, vec![]).await;
    assert!(outcome.failure().1.contains("(DNS): check `base_url`"), "{}", outcome.failure().1);

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let plain = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = socket.read_to_end(&mut Vec::new()).await;
    });
    let outcome = run_with(|settings| settings.base_url = format!("https://{address}/v1"), vec![]).await;
    assert!(outcome.failure().1.starts_with("no TLS connection to https://127"), "{}", outcome.failure().1);
    plain.abort();
}

#[tokio::test]
async fn a_profile_that_cannot_work_is_named() {
    let outcome = run_with(|settings| settings.base_url = "api.example/v1".to_owned(), vec![]).await;
    assert!(outcome.failure().1.ends_with("check [providers.test]"), "{}", outcome.failure().1);
}
