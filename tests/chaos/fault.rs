//! What goes wrong: who is killed, stopped or cut off, and when.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use scv_tests::TestEnv;
use scv_tests::processes::Process;
use serde_json::{Value, json};

use crate::report::Report;
use crate::truth::Truth;
use crate::user::BACK_WITHIN;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// SIGKILL to a worker, with a session or without.
    KillWorker,
    /// SIGKILL to the supervisor.
    KillSupervisor,
    /// Both at the same moment.
    KillBoth,
    /// SIGKILL to a process of a tool or agent.
    KillTool,
    /// SIGTERM to a worker.
    EndWorker,
    /// A worker is stopped for a moment.
    StopWorker,
    /// The supervisor is stopped for a moment.
    StopSupervisor,
    /// SIGKILL to the guard, then to the supervisor; a new guard is started.
    KillGuard,
    /// The socket's file is removed.
    RemoveSocket,
    /// Configuration is read again.
    Reload,
}

impl Fault {
    /// How often each comes, of a hundred.
    const WEIGHTS: [(Self, u32); 10] = [
        (Self::KillWorker, 34),
        (Self::KillSupervisor, 18),
        (Self::KillBoth, 8),
        (Self::KillTool, 18),
        (Self::EndWorker, 6),
        (Self::StopWorker, 6),
        (Self::StopSupervisor, 3),
        (Self::KillGuard, 2),
        (Self::RemoveSocket, 2),
        (Self::Reload, 3),
    ];

    /// One of them, by a number below a hundred.
    fn by(mut number: u32) -> Self {
        for (fault, weight) in Self::WEIGHTS {
            if number < weight {
                return fault;
            }
            number -= weight;
        }
        Self::KillWorker
    }

    /// Whether something dies of it.
    pub(crate) fn kills(self) -> bool {
        !matches!(self, Self::StopWorker | Self::StopSupervisor | Self::RemoveSocket | Self::Reload)
    }
}

/// Who makes the faults.
pub(crate) struct Faults {
    random: fastrand::Rng,
    stopped: Vec<(Instant, Process)>,
    /// When the supervisor's deaths were; a guard waits longer after each.
    calm_until: Instant,
}

impl Faults {
    pub(crate) fn new(random: fastrand::Rng) -> Self {
        Self { random, stopped: Vec::new(), calm_until: Instant::now() }
    }

    /// Waits a moment, then makes one.
    pub(crate) fn one(&mut self, env: &TestEnv, truth: &Truth, report: &mut Report) {
        std::thread::sleep(Duration::from_millis(self.random.u64(10..350)));
        self.wake(false);
        let fault = Fault::by(self.random.u32(..100));
        // A guard waits up to 10 s before it starts one that keeps dying: that is no fault of it.
        let on_supervisor = matches!(fault, Fault::KillSupervisor | Fault::KillBoth | Fault::KillGuard);
        if on_supervisor && Instant::now() < self.calm_until {
            return;
        }
        let Some(what) = self.make(env, fault) else { return };
        truth.log(format!("{fault:?} {what}"));
        report.fault(fault);
        if on_supervisor {
            let began = Instant::now();
            answers(env, truth);
            let took = began.elapsed();
            report.supervisor_back(took);
            self.calm_until = Instant::now() + Duration::from_millis(self.random.u64(..3000));
        }
    }

    fn make(&mut self, env: &TestEnv, fault: Fault) -> Option<String> {
        let mut pick = |processes: Vec<Process>| {
            let at = if processes.is_empty() { return None } else { self.random.usize(..processes.len()) };
            processes.into_iter().nth(at)
        };
        match fault {
            Fault::KillWorker => kill(&pick(env.running("scv-worker"))?),
            Fault::KillSupervisor => kill(&pick(env.running("scvd"))?),
            Fault::KillBoth => {
                let (scvd, worker) = (pick(env.running("scvd"))?, pick(env.running("scv-worker"))?);
                kill(&scvd);
                kill(&worker);
                Some(format!("{scvd} and {worker}"))
            }
            Fault::KillTool => kill(&pick(env.children())?),
            Fault::EndWorker => {
                let worker = pick(env.running("scv-worker"))?;
                worker.signal(Signal::TERM);
                Some(worker.to_string())
            }
            Fault::StopWorker | Fault::StopSupervisor => {
                let name = if fault == Fault::StopWorker { "scv-worker" } else { "scvd" };
                let process = pick(env.running(name))?;
                process.signal(Signal::STOP);
                let wakes = Instant::now() + Duration::from_millis(self.random.u64(50..1500));
                self.stopped.push((wakes, process.clone()));
                Some(process.to_string())
            }
            Fault::KillGuard => {
                let guard = env.supervisor().take()?;
                let scvd = pick(env.running("scvd"))?;
                kill(&guard.process()?);
                kill(&scvd);
                // Both are gone for good before another one starts, as after any crash.
                scvd.gone_within(BACK_WITHIN);
                drop(guard);
                env.start_guarded();
                Some(format!("and {scvd}"))
            }
            Fault::RemoveSocket => {
                std::fs::remove_file(env.layout().socket()).ok()?;
                Some(String::new())
            }
            Fault::Reload => {
                control(env, &json!({"action": "reload"}));
                Some(String::new())
            }
        }
    }

    /// Lets go on who was stopped.
    fn wake(&mut self, all: bool) {
        let now = Instant::now();
        self.stopped.retain(|(at, process)| {
            let due = all || *at <= now;
            if due {
                process.signal(Signal::CONT);
            }
            !due
        });
    }

    /// Nothing is out of order by our doing any more.
    pub(crate) fn mend(&mut self, env: &TestEnv, truth: &Truth) {
        self.wake(true);
        answers(env, truth);
    }
}

fn kill(process: &Process) -> Option<String> {
    process.signal(Signal::KILL).then(|| process.to_string())
}

/// Waits until a supervisor answers; its status.
pub(crate) fn answers(env: &TestEnv, truth: &Truth) -> Option<Value> {
    let deadline = Instant::now() + BACK_WITHIN;
    loop {
        if let Some(status) = control(env, &json!({"action": "status"})) {
            return Some(status);
        }
        if Instant::now() > deadline {
            truth.violation("no supervisor answers");
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asks the supervisor; its status, if it answers.
pub(crate) fn control(env: &TestEnv, command: &Value) -> Option<Value> {
    use std::io::{BufRead as _, BufReader, Write as _};
    let stream = env.connect().ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let hello = json!({"type": "initialize", "request_id": "1", "protocol_version": 3,
        "client": {"name": "chaos", "version": "1"}});
    let ask = json!({"type": "daemon.control", "request_id": "2", "command": command});
    (&stream).write_all(format!("{hello}\n{ask}\n").as_bytes()).ok()?;
    for line in BufReader::new(&stream).lines() {
        let event: Value = serde_json::from_str(&line.ok()?).ok()?;
        if event["request_id"] == "2" {
            return Some(event["status"].clone());
        }
    }
    None
}

/// How many faults of each kind there were.
pub(crate) type Counts = BTreeMap<Fault, u64>;
