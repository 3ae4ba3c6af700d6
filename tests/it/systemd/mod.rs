//! SCV as a service of a real systemd's user manager. Each test boots one of its own.

mod bus;
mod deaths;
mod doctor;
mod from_inside;
mod homes;
mod logout;
mod restart;
mod service;

use scv_tests::fakes::model::{Model, Reply};
use serde_json::json;

/// The model runs one command, then says `Done.`
fn runs_one_command(model: &Model, command: &str) {
    let call = json!({"command": command}).to_string();
    model.answer(move |request| {
        let outputs = request.input().iter().filter(|item| item["type"] == "function_call_output").count();
        Some(if outputs == 0 { Reply::new().call_as("c-1", "bash", &call) } else { Reply::text("Done.") })
    });
}
