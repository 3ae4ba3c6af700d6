//! `scv exec`: one prompt, headless. The answer goes to stdout as it arrives, everything else to
//! stderr.
//!
//! [`follow`] decides what an event means; this file connects it to the socket, the terminal and
//! Ctrl+C.

mod ask;
mod end;
mod follow;
mod interrupts;
mod lost;
mod open;
mod prompt;
mod screen;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use shared::client::Client;
use shared::protocol::SessionId;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use self::ask::Terminal;
use self::end::End;
use self::follow::{Act, Follow};
use self::interrupts::Interrupts;
use self::screen::Screen;
use crate::context::{Context, block_on};
use crate::error::CliError;
use crate::start;

/// What we ask of the server beyond a plain version 3.
const FEATURES: [&str; 3] = ["approvals", "attach", "notices"];

/// A session with a long journal may take a while to come back.
const OPEN_WITHIN: Duration = Duration::from_mins(1);

/// A cancelled turn ends its processes in 2.3 s; more than this is a fault of the server.
const CANCELLED_WITHIN: Duration = Duration::from_secs(15);

/// `scv exec`
#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// Approves whatever the turn asks for
    #[arg(long)]
    yes: bool,
    /// Prints the session's events, one JSON object a line
    #[arg(long)]
    json: bool,
    /// Where the session works [default: here]
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    cwd: Option<PathBuf>,
    /// The model
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    model: Option<String>,
    /// Goes on with a session
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// What is to be done; `-` reads it from stdin
    #[arg(required = true, value_name = "PROMPT")]
    prompt: Vec<String>,
}

impl Exec {
    /// Runs the prompt and returns once its turn has ended.
    pub(super) fn run(self, context: &Context) -> Result<(), CliError> {
        let prompt = prompt::read(&self.prompt)?;
        let opening = open::Opening::new(&self, context)?;
        block_on(async {
            let mut client = start::connect(context, "scv-exec", &FEATURES).await?;
            // From here on a first Ctrl+C is a wish, and a second one an end.
            let interrupts = Interrupts::install()?;
            let session_id = opening.session_id();
            if context.verbose {
                eprintln!("session {session_id}");
            }
            let open = opening.message(client.request_id());
            let mut follow = Follow::new(session_id, &open, client.request_id(), prompt);
            client.send(&open).await?;
            let screen = Screen::new(self.json, context.quiet);
            let mut shell = Shell { client, screen, terminal: Terminal::open(), yes: self.yes, interrupts };
            match shell.run(&mut follow).await? {
                End::Lost => Err(lost::explain(context, session_id, follow.has_turn()).await),
                end => end.into_result(session_id),
            }
        })
    }
}

struct Shell {
    client: Client,
    screen: Screen,
    terminal: Terminal,
    yes: bool,
    interrupts: Interrupts,
}

impl Shell {
    async fn run(&mut self, follow: &mut Follow) -> Result<End, CliError> {
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut deadline = Some(Instant::now() + OPEN_WITHIN);
        loop {
            let acts = tokio::select! {
                received = self.client.next_event() => match received? {
                    Some(received) => {
                        self.screen.event(&received.line)?;
                        follow.event(received.event, Instant::now())
                    }
                    None => vec![Act::End(End::Lost)],
                },
                () = self.interrupts.next() => {
                    self.terminal.forget();
                    deadline = Some(Instant::now() + CANCELLED_WITHIN);
                    follow.interrupt(self.client.request_id())
                }
                answer = self.terminal.answer() => vec![Act::Resolve(answer)],
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    vec![Act::End(if follow.is_open() { End::Interrupted } else { End::NotOpened(OPEN_WITHIN) })]
                }
                _ = tick.tick(), if self.screen.is_live() => Vec::new(),
            };
            for act in acts {
                if let Some(end) = self.act(act).await? {
                    self.screen.close()?;
                    return Ok(end);
                }
            }
            if follow.is_open() && !follow.is_interrupted() {
                deadline = None;
            }
            self.screen.status(if self.terminal.is_asking() { None } else { follow.status(Instant::now()) });
        }
    }

    async fn act(&mut self, act: Act) -> Result<Option<End>, CliError> {
        match act {
            Act::Answer(text) => self.screen.answer(&text)?,
            Act::EndLine => self.screen.end_line()?,
            Act::Say(text) => self.screen.say(&text),
            Act::Send(message) => self.client.send(&message).await?,
            Act::Ask(question) => {
                if let Some(answer) = question.without_asking(self.yes, self.terminal.is_there()) {
                    self.screen.tell(&answer.told());
                    return Box::pin(self.act(Act::Resolve(answer))).await;
                }
                self.screen.status(None);
                self.terminal.ask(*question);
            }
            Act::Resolve(answer) => {
                let request_id = self.client.request_id();
                self.client.send(&answer.message(request_id)).await?;
            }
            Act::Settled(approval_id) => self.terminal.withdraw(&approval_id),
            Act::End(end) => return Ok(Some(end)),
        }
        Ok(None)
    }
}
