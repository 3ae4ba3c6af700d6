//! Brings what is in line with what should be: once at start, every minute, and whenever
//! something changed. Decides in [`plan`](plan::plan) alone; acts in `apply`.

mod apply;
mod expiry;
mod observed;
mod plan;
mod wanted;

use std::rc::Rc;
use std::time::Instant;

use expiry::Expiry;
use observed::Observed;
use plan::{Action, plan};
use wanted::Wanted;

use crate::daemon::{Daemon, End};
use crate::takeover::Stage;

/// Looks once and does what has to be done. Returns when to look again, if before the next round.
pub(crate) fn once(daemon: &Rc<Daemon>) -> Option<Instant> {
    if daemon.is_stopping() || daemon.parking.stage() >= Stage::Draining {
        return None;
    }
    let now = Instant::now();
    let wanted = Wanted::read(&daemon.layout, &daemon.settings.borrow(), daemon.on_demand);
    let observed = Observed::look(daemon, now);
    let mut look_at = None;
    for action in plan(&wanted, &observed, now) {
        if let Action::LookAt(at) = action {
            look_at = Some(at);
        } else {
            apply::apply(daemon, action);
        }
    }
    look_at
}

/// Goes on for as long as the supervisor runs. Between two rounds it sleeps until something changes.
pub(crate) async fn forever(daemon: Rc<Daemon>) {
    let mut look_at = None;
    let mut last_round = Instant::now();
    let mut expiry = Expiry::default();
    loop {
        // By the setting of now; and changes in between, however many, do not put it off.
        let round = last_round + daemon.settings.borrow().reconcile_every;
        let at = look_at.map_or(round, |at: Instant| at.min(round));
        tokio::select! {
            () = daemon.changed.notified() => {}
            () = tokio::time::sleep_until(at.into()) => {}
        }
        if Instant::now() >= round && daemon.parking.stage() == Stage::Open {
            last_round = Instant::now();
            apply::housekeeping(&daemon).await;
            expiry.round(&daemon, Instant::now()).await;
        }
        if !daemon.lock.is_at_its_path() && !daemon.is_stopping() {
            // Nobody can reach us any more, and another supervisor may serve the home by now.
            daemon.end(End::Homeless);
            return;
        }
        look_at = once(&daemon);
    }
}
