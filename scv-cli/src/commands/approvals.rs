//! `scv approvals`: what waits for a person, in every session of this home.

use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use serde::Serialize;
use shared::client::Client;
use shared::protocol::client::ApprovalResolve;
use shared::protocol::control::{SessionList, SessionState};
use shared::protocol::server::{ApprovalRequest, Reply};
use shared::protocol::{ClientMessage, ServerEvent, SessionId, ids};
use shared::{clock, text};
use tokio::time::timeout;

use super::ids as named;
use super::observe::Observed;
use super::sessions::entries;
use crate::context::{Context, block_on};
use crate::error::CliError;
use crate::output;

/// Who looks and cannot answer; questions wait no longer for it.
const LOOKING: [&str; 1] = ["attach"];

/// Who answers.
const ANSWERING: [&str; 2] = ["attach", "approvals"];

/// A session takes an answer at once, after it is on the disk.
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);

/// `scv approvals`
#[derive(Debug, Subcommand)]
pub(crate) enum Approvals {
    /// Lists what waits
    Ls(List),
    /// Lets a call run
    Approve(Answer),
    /// Does not let it run; the turn goes on
    Deny(Answer),
}

/// `scv approvals ls`
#[derive(Debug, Args)]
pub(crate) struct List {
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// `scv approvals approve` and `deny`
#[derive(Debug, Args)]
pub(crate) struct Answer {
    /// Its id, or a start of it that no other has
    #[arg(value_name = "ID")]
    approval: String,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// A question, and the session that asks.
#[derive(Debug, Serialize)]
struct Open {
    session_id: SessionId,
    #[serde(flatten)]
    request: ApprovalRequest,
}

impl Approvals {
    /// Asks the supervisor that runs; without one nothing waits, and none is started.
    pub(super) fn run(&self, context: &Context) -> Result<(), CliError> {
        block_on(async {
            match self {
                Self::Ls(list) => {
                    let found = open(context).await?;
                    if list.json {
                        output::json(&found)?;
                    } else if !(found.is_empty() && context.quiet) {
                        output::table(&rows(&found, clock::to_unix_ms(SystemTime::now())))?;
                    }
                    Ok(())
                }
                Self::Approve(answer) => answer.give(context, true).await,
                Self::Deny(answer) => answer.give(context, false).await,
            }
        })
    }
}

impl Answer {
    async fn give(&self, context: &Context, approved: bool) -> Result<(), CliError> {
        if context.is_inside_a_run() {
            return Err(CliError::usage("approvals are not answered from inside a session")
                .hint("ask the person at the terminal to answer"));
        }
        let found = open(context).await?;
        let ids: Vec<&str> = found.iter().map(|open| open.request.approval_id.as_str()).collect();
        let id = named::APPROVAL.find(&self.approval, &ids)?;
        let Some(Open { session_id, request }) = found.iter().find(|open| open.request.approval_id == id) else {
            return Ok(());
        };
        let client = Client::connect(&context.layout, "scv-approvals", &ANSWERING).await?;
        let mut session = Observed::attach(context, client, *session_id).await?;
        let late = |_| CliError::failed(format!("session {session_id} did not take the answer in time"));
        timeout(ANSWERED_WITHIN, resolve(&mut session, *session_id, id, approved)).await.map_err(late)??;
        let done = if approved { "approved" } else { "denied" };
        if self.json {
            output::json(&serde_json::json!({ "approval_id": id, "session_id": session_id, "done": done }))?;
        } else if !context.quiet {
            output::line(&format!("{done} {id}: {}", what(request)))?;
        }
        Ok(())
    }
}

/// Everything that waits. Sessions at rest ask nothing and are left asleep.
async fn open(context: &Context) -> Result<Vec<Open>, CliError> {
    let mut supervisor = Client::connect(&context.layout, "scv-approvals", &[]).await?;
    let mut found = Vec::new();
    for entry in entries(&mut supervisor, SessionList::default(), None).await? {
        if entry.approvals == 0 && entry.state != SessionState::Waiting {
            continue;
        }
        let Ok(session_id) = entry.id.parse() else { continue };
        let client = Client::connect(&context.layout, "scv-approvals", &LOOKING).await?;
        // One that ended meanwhile asks nothing any more; one that is stuck does not hide the others.
        let Ok(session) = Observed::attach(context, client, session_id).await else { continue };
        found.extend(session.approvals.into_iter().map(|request| Open { session_id, request }));
    }
    Ok(found)
}

async fn resolve(
    session: &mut Observed,
    session_id: SessionId,
    approval_id: &str,
    approved: bool,
) -> Result<(), CliError> {
    let request_id = ids::fresh();
    let approval_id = approval_id.to_owned();
    let resolve = ApprovalResolve {
        request_id: request_id.clone(),
        session_id,
        approval_id: approval_id.clone(),
        approved,
        reason: None,
    };
    session.client.send(&ClientMessage::ApprovalResolve(resolve)).await?;
    loop {
        match session.next(&request_id).await? {
            // The first answer wins. Had it been another's, ours would be an error.
            ServerEvent::Reply(Reply::ApprovalResolved { approval_id: id, approved: taken, by, .. })
                if id == approval_id =>
            {
                if taken == approved && by == "client" {
                    return Ok(());
                }
                let how = if taken { "approved" } else { "denied" };
                return Err(CliError::failed(format!("it was {how} before this answer came ({by})")));
            }
            _ => {}
        }
    }
}

fn what(request: &ApprovalRequest) -> String {
    output::printable(&text::one_line(&format!("{}: {}", request.name, request.summary), 120))
}

fn rows(found: &[Open], now_unix_ms: u64) -> Vec<Vec<String>> {
    let header = ["ID", "SESSION", "TIME LEFT", "DIRECTORY", "WHAT"].map(String::from).to_vec();
    let row = |Open { session_id, request }: &Open| {
        let left = request.expires_unix_ms.map(|at| Duration::from_millis(at.saturating_sub(now_unix_ms)));
        vec![
            request.approval_id.clone(),
            session_id.to_string(),
            left.map(output::whole_seconds).unwrap_or_default(),
            output::printable(&request.cwd.display().to_string()),
            what(request),
        ]
    };
    std::iter::once(header).chain(found.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use shared::protocol::server::Risk;

    use super::*;

    #[test]
    fn a_row_tells_what_is_asked_and_how_long_it_waits() {
        let session_id = SessionId::new();
        let request = ApprovalRequest {
            approval_id: "a".into(),
            call_id: "c".into(),
            name: "bash".into(),
            risk: Risk::Process,
            cwd: "/w".into(),
            summary: "rm -rf\n\x1b[2Jbuild".into(),
            expires_unix_ms: Some(61_000),
        };
        let row = rows(&[Open { session_id, request }], 1000).remove(1);
        assert_eq!(row, ["a", &session_id.to_string(), "60 s", "/w", "bash: rm -rf  [2Jbuild"]);
    }
}
