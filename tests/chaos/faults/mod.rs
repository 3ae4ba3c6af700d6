//! What goes wrong: who is killed, stopped or cut off, and when.

mod disk;
mod kind;
mod processes;
mod sockets;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::time::{Duration, Instant};

use scv_tests::processes::Process;
use serde_json::{Value, json};

use crate::actors::{BACK_WITHIN, Stage};
use crate::checks;
use crate::world::World;
pub(crate) use kind::Fault;

/// How many faults of each kind there were.
pub(crate) type Counts = BTreeMap<Fault, u64>;

/// Who makes the faults.
pub(crate) struct Faults {
    random: fastrand::Rng,
    stopped: Vec<(Instant, Process)>,
    full_until: Option<Instant>,
    /// A supervisor that keeps dying is started later and later: until then it is left alone.
    calm_until: Instant,
    pub counts: Counts,
    /// From the death of a supervisor to an answer of the next one.
    pub recoveries: Vec<Duration>,
}

impl Faults {
    pub(crate) fn new(random: fastrand::Rng) -> Self {
        Self {
            random,
            stopped: Vec::new(),
            full_until: None,
            calm_until: Instant::now(),
            counts: Counts::new(),
            recoveries: Vec::new(),
        }
    }

    /// Waits a moment, then makes one.
    pub(crate) fn one(&mut self, stage: &Stage) {
        std::thread::sleep(Duration::from_millis(self.random.u64(10..300)));
        self.mend_due(stage, false);
        let fault = Fault::next(&mut self.random);
        if fault.is_on_supervisor() && Instant::now() < self.calm_until {
            return;
        }
        let began = Instant::now();
        let Some(what) = self.make(stage, fault) else { return };
        stage.truth.log("fault", &json!({"fault": format!("{fault:?}"), "what": what}));
        *self.counts.entry(fault).or_default() += 1;
        if fault.is_on_supervisor() {
            // With a full disk nobody starts; that is not what is measured here.
            self.mend_due(stage, true);
            answers(stage);
            self.recoveries.push(began.elapsed());
            self.calm_until = Instant::now() + Duration::from_millis(self.random.u64(..2500));
        }
    }

    fn make(&mut self, stage: &Stage, fault: Fault) -> Option<String> {
        let world = &*stage.world;
        match fault {
            Fault::KillWorker => self.kill(world.census().workers),
            Fault::KillSupervisor => self.kill(world.census().supervisors),
            Fault::KillBoth => {
                let census = world.census();
                let one = self.kill(census.supervisors)?;
                Some(format!("{one} and {:?}", self.kill(census.workers)))
            }
            Fault::KillRun => self.kill(world.census().runs),
            Fault::KillCommand => self.kill(world.census().commands),
            Fault::KillGuard => self.kill_guard(world),
            Fault::EndWorker => self.end(world.census().workers),
            Fault::EndSupervisor => self.end_supervisor(stage),
            Fault::InterruptCommand => self.interrupt(world.census().commands),
            Fault::StopWorker => self.stop(world.census().workers, 1500),
            Fault::StopSupervisor => self.stop(world.census().supervisors, 1500),
            Fault::StopRun => self.stop(world.census().runs, 800),
            Fault::StopCommand => self.stop(world.census().commands, 800),
            Fault::FillDisk => self.fill(stage),
            Fault::RemoveSocket => sockets::remove_socket(world),
            Fault::RemoveLink => sockets::remove_link(world, &mut self.random),
            Fault::Strangers => sockets::strangers(world, &mut self.random),
            Fault::Reload => control(world, &json!({"action": "reload"})).map(|_| String::new()),
            Fault::StopAndStart => {
                stop_and_start(stage);
                Some(String::new())
            }
        }
    }

    /// Nothing is out of order by our doing any more.
    pub(crate) fn mend(&mut self, stage: &Stage) {
        self.mend_due(stage, true);
        answers(stage);
    }

    fn mend_due(&mut self, stage: &Stage, all: bool) {
        self.wake(all);
        self.free(stage, all);
    }
}

/// `scv stop` leaves nothing, and `scv start` brings everything back.
fn stop_and_start(stage: &Stage) {
    checks::stops(stage);
    let started = stage.world.start();
    if !started.status.success() {
        stage.truth.violation(format!("scv start: {started:?}"));
    }
}

/// Waits until a supervisor answers; its status.
pub(crate) fn answers(stage: &Stage) -> Option<Value> {
    let deadline = Instant::now() + BACK_WITHIN;
    loop {
        if let Some(status) = control(&*stage.world, &json!({"action": "status"})) {
            return Some(status);
        }
        if Instant::now() > deadline {
            stage.truth.violation("no supervisor answers");
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asks the supervisor; its status, if it answers.
pub(crate) fn control(world: &dyn World, command: &Value) -> Option<Value> {
    let stream = world.connect().ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let hello = json!({"type": "initialize", "request_id": "1", "protocol_version": 3,
        "client": {"name": "chaos", "version": "1"}});
    let ask = json!({"type": "daemon.control", "request_id": "2", "command": command});
    (&stream).write_all(format!("{hello}\n{ask}\n").as_bytes()).ok()?;
    for line in BufReader::new(&stream).lines() {
        let event: Value = serde_json::from_str(&line.ok()?).ok()?;
        if event["request_id"] == "2" {
            return event.get("status").cloned();
        }
    }
    None
}
