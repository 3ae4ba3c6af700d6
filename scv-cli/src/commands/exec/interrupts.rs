//! Ctrl+C: the first is a wish, a second leaves at once, whatever we are stuck in.

use nix::sys::signal::{SigSet, Signal};
use tokio::sync::mpsc;

use crate::error::{CliError, Kind};

/// The first Ctrl+C of this process.
pub(super) struct Interrupts(mpsc::Receiver<()>);

impl Interrupts {
    /// Takes SIGINT over for the rest of the process.
    ///
    /// A thread waits for it rather than the runtime: a write to a pipe that nobody reads blocks
    /// the runtime, and a second Ctrl+C has to work there, too.
    pub(super) fn install() -> Result<Self, CliError> {
        let cannot = |error: std::io::Error| CliError::failed("cannot take over Ctrl+C").because(error);
        let mut interrupt = SigSet::empty();
        interrupt.add(Signal::SIGINT);
        interrupt.thread_block().map_err(|error| cannot(error.into()))?;
        let (sender, receiver) = mpsc::channel(1);
        let wait = move || {
            let mut seen = false;
            while interrupt.wait().is_ok() {
                if seen {
                    std::process::exit(Kind::Interrupted.exit_code().into());
                }
                seen = true;
                let _ = sender.try_send(());
            }
        };
        std::thread::Builder::new().name("interrupts".into()).spawn(wait).map_err(cannot)?;
        Ok(Self(receiver))
    }

    /// The first one. Never ends without it.
    pub(super) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
