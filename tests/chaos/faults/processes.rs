//! Signals to one of several.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use scv_tests::processes::Process;

use super::Faults;
use crate::actors::{BACK_WITHIN, Stage};
use crate::world::World;

impl Faults {
    fn signal(&mut self, among: Vec<Process>, signal: Signal) -> Option<Process> {
        let process = self.random.choice(among)?;
        process.signal(signal).then_some(process)
    }

    pub(super) fn kill(&mut self, among: Vec<Process>) -> Option<String> {
        self.signal(among, Signal::KILL).map(|process| process.to_string())
    }

    pub(super) fn end(&mut self, among: Vec<Process>) -> Option<String> {
        self.signal(among, Signal::TERM).map(|process| process.to_string())
    }

    pub(super) fn interrupt(&mut self, among: Vec<Process>) -> Option<String> {
        self.signal(among, Signal::INT).map(|process| process.to_string())
    }

    /// Stops one for up to `at_most` milliseconds.
    pub(super) fn stop(&mut self, among: Vec<Process>, at_most: u64) -> Option<String> {
        let process = self.signal(among, Signal::STOP)?;
        self.stopped.push((Instant::now() + Duration::from_millis(self.random.u64(50..at_most)), process.clone()));
        Some(process.to_string())
    }

    /// Lets go on who was stopped.
    pub(super) fn wake(&mut self, all: bool) {
        let now = Instant::now();
        self.stopped.retain(|(at, process)| {
            let due = all || *at <= now;
            if due {
                process.signal(Signal::CONT);
            }
            !due
        });
    }

    /// Both are gone for good before the next command starts new ones, as after any crash.
    pub(super) fn kill_guard(&mut self, world: &dyn World) -> Option<String> {
        let guard = world.guard()?;
        let supervisor = self.random.choice(world.census().supervisors);
        guard.signal(Signal::KILL);
        if let Some(supervisor) = &supervisor {
            supervisor.signal(Signal::KILL);
            supervisor.gone_within(BACK_WITHIN);
        }
        guard.gone_within(BACK_WITHIN);
        world.start();
        Some(format!("{guard} and {supervisor:?}"))
    }

    /// One that was asked to leave is not started again by its guard.
    pub(super) fn end_supervisor(&mut self, stage: &Stage) -> Option<String> {
        // One that is stopped does not leave.
        self.wake(true);
        let process = self.signal(stage.world.census().supervisors, Signal::TERM)?;
        if !process.gone_within(BACK_WITHIN) {
            stage.truth.violation(format!("{process} does not leave on SIGTERM"));
        }
        stage.world.start();
        Some(process.to_string())
    }
}
