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
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use shared::client::{Client, ClientError};
use shared::protocol::client::OfSession;
use shared::protocol::{ClientMessage, SessionId};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

pub(super) use self::open::client_context;

use self::ask::Terminal;
use self::end::End;
use self::follow::{Act, Follow, Next};
use self::interrupts::Interrupts;
use self::lost::Losses;
use self::open::Opening;
use self::screen::Screen;
use self::watch::Watch;
use crate::context::{Context, block_on};
use crate::error::CliError;
use crate::start;

/// What we ask of the server beyond a plain version 3.
const FEATURES: [&str; 3] = ["approvals", "attach", "notices"];

/// A session with a long journal may take a while to come back.
const OPEN_WITHIN: Duration = Duration::from_mins(1);

/// A cancelled turn ends its processes in 2.3 s; more than this is a fault of the server.
const CANCELLED_WITHIN: Duration = Duration::from_secs(15);

/// A session answers a request to leave at once.
const DETACHED_WITHIN: Duration = Duration::from_secs(2);

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
            let terminal = Terminal::open();
            let losses = Losses::default();
            let yes = self.yes;
            let mut shell = Shell { context, opening, client, losses, screen, terminal, yes, interrupts };
            match shell.run(&mut follow).await? {
                End::Lost => Err(lost::explain(context, session_id, follow.has_turn())),
                end => end.into_result(session_id),
            }
        })
    }
}

/// Follows a session that exists, without a prompt of our own.
pub(super) async fn attach(context: &Context, session_id: SessionId, json: bool) -> Result<(), CliError> {
    let mut client = start::connect(context, "scv-attach", &FEATURES).await?;
    let interrupts = Interrupts::install()?;
    let opening = Opening::attach(context, session_id)?;
    let mut watch = Watch::new(client.request_id());
    client.send(&opening.again(watch.request_id().to_owned(), 0)).await?;
    let screen = Screen::new(json, context.quiet);
    let (terminal, losses) = (Terminal::open(), Losses::default());
    let mut shell = Shell { context, opening, client, losses, screen, terminal, yes: false, interrupts };
    match shell.run(&mut watch).await? {
        End::Lost => Err(lost::explain(context, session_id, false)),
        End::Detached => shell.detach(session_id).await,
        end => end.into_result(session_id),
    }
}

struct Shell<'a> {
    context: &'a Context,
    opening: Opening,
    client: Client,
    losses: Losses,
    screen: Screen,
    terminal: Terminal,
    yes: bool,
    interrupts: Interrupts,
}

impl Shell<'_> {
    async fn run(&mut self, follow: &mut impl Next) -> Result<End, CliError> {
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut deadline = Some(Instant::now() + OPEN_WITHIN);
        loop {
            let acts = tokio::select! {
                received = self.client.next_event() => match received {
                    Ok(Some(received)) => {
                        if received.event.seq().is_some() {
                            self.losses.heard();
                        }
                        self.screen.event(&received.line)?;
                        follow.event(received.event, Instant::now())
                    }
                    Ok(None) | Err(ClientError::Lost | ClientError::Broken(_)) if follow.is_interrupted() => {
                        vec![Act::End(End::Interrupted)]
                    }
                    Ok(None) | Err(ClientError::Lost | ClientError::Broken(_)) => self.attach_again(follow).await?,
                    Err(error) => return Err(error.into()),
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

    /// Goes on over another connection, where there is one to be had.
    async fn attach_again(&mut self, follow: &mut impl Next) -> Result<Vec<Act>, CliError> {
        // They are asked again, if they are still open.
        self.terminal.forget();
        self.screen.status(Some("lost the connection; attaching again …".into()));
        let connected = tokio::select! {
            connected = self.losses.connect(self.context) => connected,
            () = self.interrupts.next() => return Ok(vec![Act::End(End::Interrupted)]),
        };
        let Some(client) = connected else { return Ok(vec![Act::End(End::Lost)]) };
        self.client = client;
        let client = &mut self.client;
        let message = follow.attach_again(&self.opening, &mut || client.request_id());
        self.send(&message).await?;
        Ok(Vec::new())
    }

    /// Leaves the session to go on, also without a client.
    async fn detach(&mut self, session_id: SessionId) -> Result<(), CliError> {
        let request_id = self.client.request_id();
        self.send(&ClientMessage::SessionDetach(OfSession { request_id, session_id })).await?;
        self.client.closed(DETACHED_WITHIN).await;
        self.screen.say(&format!("left; the session goes on: scv sessions attach {session_id}"));
        Ok(())
    }

    /// Sends a message. That the connection has ended is seen where it is read.
    async fn send(&mut self, message: &ClientMessage) -> Result<(), CliError> {
        match self.client.send(message).await {
            Ok(()) | Err(ClientError::Lost | ClientError::Broken(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn act(&mut self, act: Act) -> Result<Option<End>, CliError> {
        match act {
            Act::Answer(text) => self.screen.answer(&text)?,
            Act::EndLine => self.screen.end_line()?,
            Act::Say(text) => self.screen.say(&text),
            Act::Send(message) => self.send(&message).await?,
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
                self.send(&answer.message(request_id)).await?;
            }
            Act::Settled(approval_id) => self.terminal.withdraw(&approval_id),
            Act::End(end) => return Ok(Some(end)),
        }
        Ok(None)
    }
}
