//! What is sent again, and what is not.

use super::*;

#[tokio::test]
async fn what_may_pass_is_tried_again_and_shown() {
    let busy = || status("429 Too Many", "retry-after: 0\r\n", "");
    let reported = json!({"type": "response.failed", "response": {"error": {
        "code": "rate_limit_exceeded", "message": "Please try again in 1ms."}}});
    let acts =
        vec![busy(), Act::Close, stream(""), stream(&sse(&[reported])), stream(&sse(&[delta("hi"), completed()]))];
    let outcome = run_with(|settings| settings.max_retries = 4, acts).await;
    assert_eq!(outcome.result.unwrap().items, [Item::Assistant { text: "hi".to_owned() }]);
    assert_eq!(outcome.notices.len(), 4);
    assert_eq!(outcome.notices[0], "the provider limits requests (429); trying again in 0.0 s (1 of 4)");
    assert!(outcome.notices[3].ends_with("(4 of 4)"), "{:?}", outcome.notices);
}

#[tokio::test]
async fn retries_end() {
    let busy = || status("500 Oh", "retry-after-ms: 1\r\n", "");
    let outcome = run_with(|settings| settings.max_retries = 2, vec![busy(), busy(), busy()]).await;
    assert_eq!(outcome.failure().1, "the provider failed (500) (after 2 retries): try again later");
}

#[tokio::test]
async fn nothing_is_tried_again_that_cannot_pass_or_has_begun() {
    let acts = || {
        [
            status("401 Unauthorized", "retry-after: 0\r\n", ""),
            status("429 Too Many", "retry-after: 0\r\n", &error_body("insufficient_quota", "pay")),
            status("429 Too Many", "retry-after: 61\r\n", ""),
            stream(&sse(&[delta("begun")])),
        ]
    };
    for act in acts() {
        let outcome = run_with(|settings| settings.max_retries = 5, vec![act]).await;
        assert!(outcome.result.is_err());
        assert_eq!(outcome.notices, [""; 0]);
    }
}

#[tokio::test]
async fn an_endpoint_that_refuses_encrypted_reasoning_is_asked_without() {
    let refusal = error_body("", "Encrypted content is not supported with this model.");
    let outcome = run(vec![status("400 Bad Request", "", &refusal), stream(&sse(&[completed()]))]).await;
    assert!(outcome.result.is_ok());
    let asked: Vec<bool> = outcome.requests.iter().map(|request| request.contains("encrypted_content")).collect();
    assert_eq!(asked, [true, false]);
}
