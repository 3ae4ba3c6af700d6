//! What is measured.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use scv_tests::fakes::model::{Model, Reply};
use scv_tests::wire::is_terminal;
use scv_tests::{TestEnv, Wire, eventually};
use serde_json::{Value, json};

use crate::figures::{Figures, promise};

/// Every item; arguments choose by a part of the name.
pub(crate) const ALL: &[(&str, fn())] = &[
    ("session.start", spare_session_start),
    ("session.wake", crate::rest::wake),
    ("many", crate::rest::many),
    ("bash", bash_beside_bare),
    ("status", status),
    ("cold", cold_start),
    ("deltas", delta_throughput),
    ("memory", memory_of_an_idle_session),
];

/// Nobody asks the model of these.
const UNASKED: &str = "http://127.0.0.1:9/v1";

/// Promised: a session from a spare worker, at the median.
const SESSION_START_MS: f64 = 1.0;
/// Promised: `bash -lc true` through a session over the same command spawned bare.
const BASH_RATIO: f64 = 1.3;

fn has_spare(control: &mut Wire) -> bool {
    let status = control.control(&json!({"action": "status"}));
    status["workers"].as_array().is_some_and(|workers| workers.iter().any(|worker| worker["role"] == "spare"))
}

/// Sends a line and reads the next one.
fn exchange(client: &mut BufReader<UnixStream>, message: &Value) -> Value {
    client.get_mut().write_all(format!("{message}\n").as_bytes()).expect("sent");
    let mut line = String::new();
    client.read_line(&mut line).expect("an answer");
    serde_json::from_str(&line).expect("one object")
}

fn spare_session_start() {
    let env = TestEnv::with_model(UNASKED);
    env.start();
    let mut control = Wire::plain(&env);
    let mut figures = Figures::new("session.start from a spare", "ms");
    for _ in 0..60 {
        eventually("a spare worker", Duration::from_secs(10), || has_spare(&mut control));
        // A bare socket: a test's client has a thread of its own, whose waking up is not ours.
        let mut client = BufReader::new(env.connect().expect("the supervisor"));
        let hello = json!({"type": "initialize", "request_id": "1", "protocol_version": 3, "client": {"name": "b"}});
        assert_eq!(exchange(&mut client, &hello)["type"], "initialized");
        let start_session = json!({"type": "session.start", "request_id": "2", "cwd": env.work()});
        let start = Instant::now();
        let answer = exchange(&mut client, &start_session);
        figures.took(start.elapsed());
        assert_eq!(answer["type"], "session.started");
    }
    figures.show();
    promise("median", figures.median(), SESSION_START_MS);
    env.finish();
}

fn bash_beside_bare() {
    const CALLS: usize = 60;
    let model = Model::start_blocking();
    let call = || Reply::new().call("bash", &json!({"command": "true"}));
    model.script(std::iter::repeat_with(call).take(CALLS).chain([Reply::text("done")]));
    let env = TestEnv::new();
    env.configure(&model.url(), "");
    env.start();
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({}));
    let bare = || {
        let start = Instant::now();
        let status = env
            .command_at("/bin/bash".as_ref())
            .args(["-lc", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert!(status.status.success());
        start.elapsed()
    };
    // From the answer, which we know the time of, to the result: what a person waits for. The
    // journal's syncs are part of it.
    let mut through = Figures::new("bash -lc true, approved to completed", "ms");
    let mut alone = Figures::new("bash -lc true, spawned bare", "ms");
    wire.prompt(&session, "go");
    let mut approved = Instant::now();
    loop {
        let event = wire.until("the next step", |event| {
            is_terminal(event) || ["approval.requested", "tool.completed"].iter().any(|kind| event["type"] == *kind)
        });
        match event["type"].as_str().unwrap() {
            "approval.requested" => {
                approved = Instant::now();
                wire.send(&json!({"type": "approval.resolve", "request_id": event["approval_id"],
                    "session_id": session, "approval_id": event["approval_id"], "approved": true}));
            }
            "tool.completed" => {
                through.took(approved.elapsed());
                assert_eq!(event["success"], true, "{event}");
                // Between two calls, so that both see the same machine.
                alone.took(bare());
            }
            "turn.completed" => break,
            _ => panic!("{event}"),
        }
    }
    alone.show();
    through.show();
    promise("ratio of the medians", through.median() / alone.median(), BASH_RATIO);
    env.finish();
}

fn status() {
    let env = TestEnv::with_model(UNASKED);
    env.start();
    let mut whole = Figures::new("scv status, the whole command", "ms");
    let mut wire = Wire::plain(&env);
    let mut request = Figures::new("daemon.control status", "ms");
    for _ in 0..100 {
        whole.took(env.scv(&["status"]).took);
        let start = Instant::now();
        wire.control(&json!({"action": "status"}));
        request.took(start.elapsed());
    }
    whole.show();
    request.show();
    env.finish();
}

fn cold_start() {
    let mut ready = Figures::new("scvd, from its start to ready", "ms");
    let mut first = Figures::new("… and to the first session.started", "ms");
    let mut exec = Figures::new("scv exec with no supervisor, whole", "ms");
    let mut warm = Figures::new("scv exec with a supervisor, whole", "ms");
    let model = Model::start_blocking();
    model.answer(|_| Some(Reply::text("hello")));
    for _ in 0..10 {
        let env = TestEnv::with_model(&model.url());
        let start = Instant::now();
        env.start();
        ready.took(start.elapsed());
        Wire::plain(&env).session(&env, &json!({}));
        first.took(start.elapsed());
        env.finish();
        let env = TestEnv::with_model(&model.url());
        let output = env.scv(&["exec", "hi"]);
        exec.took(output.exits(0).took);
        warm.took(env.scv(&["exec", "hi"]).exits(0).took);
        env.finish();
    }
    ready.show();
    first.show();
    exec.show();
    warm.show();
}

fn delta_throughput() {
    const PIECES: usize = 10_000;
    const DELTA: &str = "sixteen bytes ok";
    let model = Model::start_blocking();
    // Large pieces of the body: the client is measured, not the fake's flushing.
    model.answer(|_| Some(Reply::new().deltas(vec![DELTA; PIECES]).pieces_of(64 << 10)));
    let env = TestEnv::with_model(&model.url());
    env.start();
    let mut wire = Wire::plain(&env);
    let session = wire.session(&env, &json!({}));
    let mut rate = Figures::new("assistant.delta", "thousand a second");
    for _ in 0..10 {
        let start = Instant::now();
        wire.prompt(&session, "go");
        let events = wire.turn();
        let seconds = start.elapsed().as_secs_f64();
        assert_eq!(events.last().unwrap()["type"], "turn.completed");
        let deltas = events.iter().filter(|event| event["type"] == "assistant.delta");
        let text: usize = deltas.map(|event| event["content"].as_str().unwrap().len()).sum();
        assert_eq!(text, PIECES * DELTA.len());
        #[allow(clippy::cast_precision_loss, reason = "ten thousand")]
        rate.add(PIECES as f64 / seconds / 1000.0);
    }
    rate.show();
    env.finish();
}

fn memory_of_an_idle_session() {
    let model = Model::start_blocking();
    model.answer(|_| Some(Reply::text("hello")));
    let env = TestEnv::with_model(&model.url());
    env.start();
    let mut wires: Vec<(Wire, String)> = (0..20)
        .map(|_| {
            let mut wire = Wire::plain(&env);
            let session = wire.session(&env, &json!({}));
            (wire, session)
        })
        .collect();
    pss(&env, "memory of a worker, session just started");
    for (wire, session) in &mut wires {
        wire.prompt(session, "hi");
        wire.turn();
    }
    pss(&env, "memory of a worker, idle after one turn");
    let mut supervisor = Figures::new("memory of scvd, 20 sessions", "KiB PSS");
    for process in env.running("scvd") {
        add_pss(&mut supervisor, &process);
    }
    supervisor.show();
    drop(wires);
    env.finish();
}

fn pss(env: &TestEnv, what: &str) {
    let mut figures = Figures::new(what, "KiB PSS");
    for process in env.running("scv-worker") {
        add_pss(&mut figures, &process);
    }
    figures.show();
}

#[allow(clippy::cast_precision_loss, reason = "kibibytes of a process")]
fn add_pss(figures: &mut Figures, process: &scv_tests::processes::Process) {
    if let Some(pss) = process.pss_kib() {
        figures.add(pss as f64);
    }
}
