//! `scv demo`: the whole system on a scripted model and a small agent. No key, no network, nothing
//! left behind.
//!
//! The story only watches and answers, as any client would; it succeeds if everything it tells
//! has really happened.

mod house;
mod ledger;
mod stage;

use std::io;
use std::time::Duration;

use shared::process::{self, Signal};

use self::house::House;
use self::ledger::Ledger;
use self::stage::{Scene, Stage};
use crate::context::{Context, block_on};
use crate::error::CliError;

/// Ends of processes are events; this is only the bound of waiting for them.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// `scv demo`: tells the story. Fails if any part of it did not happen.
pub(super) fn run(context: &Context) -> Result<(), CliError> {
    // Whatever a dead supervisor leaves comes up to us, and is seen.
    process::become_subreaper().map_err(cannot("watch the demo's processes"))?;
    block_on(async {
        let house = House::build(context).await?;
        let mut ledger = Ledger::new();
        let told = story(&house, &mut ledger).await;
        heading("5. What was started, and what is left");
        let closed = house.close(&mut ledger, GONE_WITHIN).await;
        let left = ledger.report()?;
        told.and(closed)?;
        if left > 0 {
            return Err(CliError::failed(format!("{left} processes of the demo are still there")));
        }
        say("\nEverything that was started is gone, and the demo's files with it.");
        Ok(())
    })
}

async fn story(house: &House, ledger: &mut Ledger) -> Result<(), CliError> {
    say("This is SCV on a scripted model: a private supervisor in a temporary home, no key, no network.");
    heading("1. A turn: files, a command, another agent");
    let mut stage = Stage::open(house).await?;
    let scene = stage.turn("Summarise notes.txt, check it, and let another agent look around.", ledger).await?;
    check_work(house, &scene)?;

    heading("2. A worker is killed in the middle of a command (SIGKILL)");
    stage.turn_until_tool("Run the long command.", ledger).await?;
    let worker = house.worker_of(stage.session_id()).await?;
    say(&format!("  killing worker {}", worker.pid));
    ledger.note(&worker);
    worker.signal(Signal::KILL).map_err(cannot("kill the worker"))?;
    stage.expect_lost(ledger).await?;

    heading("3. The session comes back from its journal");
    let interrupted = stage.attach(house, ledger).await?;
    expect(interrupted == 1, "the interrupted turn is told once")?;
    let below = ledger.living_below_dead(&worker);
    expect(below == 0, "nothing of the dead worker runs any more")?;

    heading("4. It goes on where it was");
    let scene = stage.turn("What do you remember?", ledger).await?;
    expect(scene.answer.contains("interrupted"), "the session remembers")?;
    Ok(())
}

/// What the first turn must have done.
fn check_work(house: &House, scene: &Scene) -> Result<(), CliError> {
    let summary = std::fs::read_to_string(house.workspace().join("summary.md")).unwrap_or_default();
    expect(summary.starts_with("# Summary"), "the summary is written")?;
    expect(scene.outputs.iter().any(|(tool, text)| tool == "read" && text.contains("milk")), "the notes were read")?;
    expect(scene.outputs.iter().any(|(tool, text)| tool == "bash" && text.contains("step 4 of 4")), "the command ran")?;
    expect(scene.progress.iter().any(|line| line.contains("step")), "its progress was seen")?;
    expect(scene.approvals >= 3, "every risky step was asked and answered")?;
    let reported = |text: &str| text.contains("\"completed\"") && text.contains("files here");
    expect(scene.outputs.iter().any(|(tool, text)| tool == "agent" && reported(text)), "the agent reported")
}

/// Tells that `what` is so, or fails.
fn expect(holds: bool, what: &str) -> Result<(), CliError> {
    if holds {
        say(&format!("  ✓ {what}"));
        Ok(())
    } else {
        Err(CliError::failed(format!("the demo expected that {what}, and it is not so")))
    }
}

fn heading(text: &str) {
    say(&format!("\n== {text}"));
}

fn say(text: &str) {
    // A reader that went away ends the demo at the next step.
    let _ = crate::output::line(text);
}

fn cannot(what: &str) -> impl FnOnce(io::Error) -> CliError + '_ {
    move |error| CliError::failed(format!("cannot {what}")).because(error)
}
