//! The first words of a connection, over the socket and over standard streams.

use scv_tests::{TestEnv, Wire};
use serde_json::{Value, json};

/// A supervisor that runs, and no configuration beyond a model that nobody asks.
fn running() -> TestEnv {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start();
    env
}

/// Runs `claim` over each transport that speaks the protocol.
fn over_each_transport(claim: impl Fn(&TestEnv, Wire)) {
    let env = running();
    claim(&env, Wire::connect(&env));
    claim(&env, Wire::server(&env));
    claim(&env, Wire::worker(&env));
    env.finish();
}

fn initialize(version: u32) -> Value {
    json!({"type": "initialize", "protocol_version": version, "client": {"name": "t", "version": "1"}})
}

#[test]
fn a_client_of_version_3_is_welcome() {
    over_each_transport(|_, mut wire| {
        let answer = wire.initialize(&[]);
        assert_eq!(answer["protocol_version"], 3);
        assert!(answer["server"]["name"].is_string() && answer["server"]["version"].is_string());
        assert_eq!(answer.get("features"), None, "nobody asked for a feature");
    });
}

#[test]
fn features_in_force_are_echoed_and_unknown_ones_are_not() {
    over_each_transport(|_, mut wire| {
        let answer = wire.initialize(&["approvals", "telepathy"]);
        assert_eq!(answer["features"], json!(["approvals"]));
    });
}

#[test]
fn nothing_comes_before_initialize() {
    over_each_transport(|env, mut wire| {
        let early = wire.ask(json!({"type": "session.start", "cwd": env.work()}));
        assert_eq!(
            (&early["type"], &early["code"], &early["fatal"]),
            (&json!("error"), &json!("not_initialized"), &json!(false))
        );
        wire.initialize(&[]);
    });
}

#[test]
fn another_version_is_refused_and_the_connection_closed() {
    over_each_transport(|_, mut wire| {
        let refused = wire.ask(initialize(4));
        assert_eq!((&refused["code"], &refused["fatal"]), (&json!("version_mismatch"), &json!(true)));
        assert!(refused["message"].as_str().unwrap().contains('3'), "it says what it speaks: {refused}");
        assert_eq!(wire.until_closed(), Vec::<Value>::new());
    });
}

#[test]
fn an_unknown_message_is_answered_and_the_connection_stays() {
    over_each_transport(|_, mut wire| {
        wire.initialize(&[]);
        let answer = wire.ask(json!({"type": "weather.forecast", "city": "Bern"}));
        assert_eq!((&answer["code"], &answer["fatal"]), (&json!("invalid_json"), &json!(false)));
        let again = wire.ask(json!({"type": "weather.forecast"}));
        assert_eq!(again["code"], "invalid_json");
    });
}

#[test]
fn unknown_fields_are_ignored() {
    over_each_transport(|_, mut wire| {
        let mut message = initialize(3);
        message["mood"] = json!({"today": ["good"]});
        assert_eq!(wire.ask(message)["type"], "initialized");
    });
}

#[test]
fn a_field_of_the_wrong_kind_is_an_invalid_request_that_names_its_request() {
    over_each_transport(|_, mut wire| {
        wire.initialize(&[]);
        let answer = wire.ask(json!({"type": "session.start", "cwd": 7, "model": "secret-value"}));
        assert_eq!(answer["code"], "invalid_request");
        assert!(!answer.to_string().contains("secret-value"));
    });
}

#[test]
fn a_session_needs_an_absolute_directory_that_exists() {
    over_each_transport(|env, mut wire| {
        wire.initialize(&[]);
        for cwd in ["relative/path".into(), env.work().join("missing"), env.file("a-file", "")] {
            let answer = wire.ask(json!({"type": "session.start", "cwd": cwd}));
            assert_eq!((&answer["type"], &answer["code"]), (&json!("error"), &json!("invalid_request")), "{cwd:?}");
        }
        // And the connection is still good for a session.
        wire.session(env, &json!({}));
    });
}

#[test]
fn a_connection_has_one_session() {
    over_each_transport(|env, mut wire| {
        wire.initialize(&[]);
        wire.session(env, &json!({}));
        let second = wire.ask(json!({"type": "session.start", "cwd": env.work()}));
        assert_eq!(second["code"], "invalid_request");
        assert!(second["message"].as_str().unwrap().contains("one session per connection"), "{second}");
    });
}
