use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde_json::json;
use shared::protocol::server::{Risk, ToolErrorKind};
use tokio::task::LocalSet;

use super::sink::FromTurn;
use super::*;
use crate::approvals::Answer;
use crate::provider::ProviderError;
use crate::tools::{CallContext, Output, Prepared, Tool, ToolError};

/// Answers requests from a list; an empty list never answers.
struct Scripted(RefCell<VecDeque<Result<Response, ProviderError>>>);

impl Provider for Scripted {
    fn respond(
        &self,
        _: Request,
        events: mpsc::Sender<StreamEvent>,
    ) -> LocalBoxFuture<'_, Result<Response, ProviderError>> {
        let next = self.0.borrow_mut().pop_front();
        Box::pin(async move {
            let Some(next) = next else { return std::future::pending().await };
            if let Ok(response) = &next {
                for item in &response.items {
                    if let Item::Assistant { text } = item {
                        events.send(StreamEvent::Text(text.clone())).await.unwrap();
                    }
                }
            }
            next
        })
    }
}

/// A tool that waits for its cancellation, or answers at once.
struct Stub {
    risk: Risk,
    waits: bool,
}

impl Tool for Stub {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "stub".into(), description: String::new(), parameters: json!({}) }
    }

    fn prepare(&self, _: Value) -> Result<Prepared<'_>, ToolError> {
        let waits = self.waits;
        Ok(Prepared {
            risk: self.risk,
            summary: "do it".into(),
            limit: Some(Duration::from_secs(9)),
            run: Box::new(move |context: CallContext| {
                Box::pin(async move {
                    if waits {
                        context.progress.line("working");
                        context.cancel.cancelled().await;
                        return Err(ToolError::Cancelled("ended".into()));
                    }
                    Ok(Output { text: "sk-secret out".into(), success: true, truncated: false })
                })
            }),
        })
    }
}

fn text(text: &str) -> Response {
    Response { items: vec![Item::Assistant { text: text.into() }], ..Response::default() }
}

fn calls(ids: &[&str]) -> Response {
    let items = ids
        .iter()
        .map(|id| Item::Call { call_id: (*id).into(), name: "stub".into(), arguments: "{}".into() })
        .collect();
    Response { items, ..Response::default() }
}

fn turn(responses: Vec<Result<Response, ProviderError>>, tool: Stub) -> Turn {
    Turn {
        items: vec![Rc::new(Item::User { text: "go".into() })],
        model: "m".into(),
        instructions: "".into(),
        provider: Rc::new(Scripted(RefCell::new(responses.into()))),
        tools: Rc::new(Toolbox::new(vec![Box::new(tool)]).unwrap()),
        policy: ApprovalPolicy::OnRisk,
        mask: Rc::new(Mask::of(["sk-secret"])),
        max_steps: 3,
        cancel: CancellationToken::new(),
    }
}

/// Runs the turn as its session would; `answer` decides on questions, `seen` on cancelling.
async fn run(turn: Turn, answer: Answer, cancel_at: Option<&str>) -> Vec<TurnBody> {
    let cancel = turn.cancel.clone();
    let (sink, mut messages) = Sink::new();
    let local = LocalSet::new();
    local.spawn_local(turn.run(sink));
    local
        .run_until(async move {
            let mut told = Vec::new();
            while let Some(message) = messages.recv().await {
                let bodies = match message {
                    FromTurn::Tell { body, done, .. } => {
                        if let Some(done) = done {
                            done.send(()).unwrap();
                        }
                        vec![body]
                    }
                    FromTurn::Response { told, done, .. } => {
                        done.send(()).unwrap();
                        told
                    }
                    FromTurn::Ask { answer: to, .. } => {
                        to.send(answer.clone()).unwrap();
                        Vec::new()
                    }
                    FromTurn::Notice { .. } => Vec::new(),
                    FromTurn::Ended { body } => {
                        told.push(body);
                        break;
                    }
                };
                for body in bodies {
                    let kind = serde_json::to_value(&body).unwrap()["type"].as_str().unwrap().to_owned();
                    if Some(kind.as_str()) == cancel_at {
                        cancel.cancel();
                    }
                    told.push(body);
                }
            }
            told
        })
        .await
}

fn kinds(told: &[TurnBody]) -> Vec<String> {
    told.iter().map(|body| serde_json::to_value(body).unwrap()["type"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_turn_ends_when_the_model_calls_nothing_more() {
    let turn = turn(vec![Ok(calls(&["1", "2"])), Ok(text("done"))], Stub { risk: Risk::ReadOnly, waits: false });
    let told = run(turn, Answer::Approved, None).await;
    assert_eq!(
        kinds(&told),
        [
            "assistant.completed",
            "tool.proposed",
            "tool.proposed",
            "tool.started",
            "tool.completed",
            "tool.started",
            "tool.completed",
            "assistant.delta",
            "assistant.completed",
            "turn.completed"
        ]
    );
}

#[tokio::test]
async fn a_denied_call_never_starts_and_the_model_goes_on() {
    let turn = turn(vec![Ok(calls(&["1"])), Ok(text("well"))], Stub { risk: Risk::Process, waits: false });
    let told = run(turn, Answer::Denied("denied by the user".into()), None).await;
    assert!(!kinds(&told).contains(&"tool.started".to_owned()));
    let TurnBody::ToolCompleted(completed) = &told[2] else { panic!("{told:?}") };
    assert_eq!((completed.success, completed.error), (false, Some(ToolErrorKind::Denied)));
    assert!(matches!(told.last(), Some(TurnBody::Completed { steps: 2, .. })));
}

#[tokio::test]
async fn a_cancelled_call_is_completed_as_cancelled_and_nothing_runs_after_it() {
    let turn = turn(vec![Ok(calls(&["1", "2"]))], Stub { risk: Risk::ReadOnly, waits: true });
    let told = run(turn, Answer::Approved, Some("tool.started")).await;
    assert_eq!(kinds(&told)[3..], ["tool.started", "tool.completed", "turn.cancelled"]);
}

#[tokio::test]
async fn a_turn_can_be_cancelled_while_the_provider_is_silent() {
    let turn = turn(Vec::new(), Stub { risk: Risk::ReadOnly, waits: false });
    turn.cancel.cancel();
    assert_eq!(kinds(&run(turn, Answer::Approved, None).await), ["turn.cancelled"]);
}

#[tokio::test]
async fn a_failed_request_fails_the_turn_with_its_code() {
    let error = ProviderError { code: ErrorCode::ResponseLimit, message: "too large".into() };
    let told = run(turn(vec![Err(error)], Stub { risk: Risk::ReadOnly, waits: false }), Answer::Approved, None).await;
    assert_eq!(told, [TurnBody::Failed { code: ErrorCode::ResponseLimit, message: "too large".into(), origin: None }]);
}

#[tokio::test]
async fn the_step_limit_ends_a_turn_that_calls_for_ever() {
    let responses = (0..9).map(|n| Ok(calls(&[&n.to_string()]))).collect();
    let told = run(turn(responses, Stub { risk: Risk::ReadOnly, waits: false }), Answer::Approved, None).await;
    assert!(matches!(told.last(), Some(TurnBody::Failed { code: ErrorCode::StepLimit, .. })));
    assert_eq!(kinds(&told).iter().filter(|kind| *kind == "tool.completed").count(), 3);
}

#[tokio::test]
async fn a_secret_value_is_masked_in_what_a_tool_gives() {
    let turn = turn(vec![Ok(calls(&["1"])), Ok(text("ok"))], Stub { risk: Risk::ReadOnly, waits: false });
    let told = run(turn, Answer::Approved, None).await;
    let TurnBody::ToolCompleted(completed) = &told[3] else { panic!("{told:?}") };
    assert_eq!(completed.output, "[secret] out");
}

#[tokio::test(start_paused = true)]
async fn progress_comes_at_most_twice_a_second_between_start_and_completion() {
    let turn = turn(vec![Ok(calls(&["1"]))], Stub { risk: Risk::ReadOnly, waits: true });
    let told = run(turn, Answer::Approved, Some("tool.progress")).await;
    assert_eq!(kinds(&told)[2..], ["tool.started", "tool.progress", "tool.completed", "turn.cancelled"]);
}
