//! Many clients, silent ones and deaf ones: each costs a bound, none stops the others.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use scv_tests::processes::Process;
use scv_tests::{Program, TestEnv, Wire, eventually};
use serde_json::json;
use shared::protocol::limits::INITIALIZE_WITHIN;

const HELLO: &[u8] = b"{\"type\":\"initialize\",\"request_id\":\"h\",\"protocol_version\":3,\"client\":{\"name\":\"t\",\"version\":\"1\"}}\n";
const STATUS: &[u8] = b"{\"type\":\"daemon.control\",\"request_id\":\"s\",\"command\":{\"action\":\"status\"}}\n";

fn running() -> TestEnv {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    env.start();
    env
}

/// Reads to the first newline; what came, which is nothing where the connection was closed.
fn line(stream: &mut UnixStream) -> Vec<u8> {
    stream.set_read_timeout(Some(scv_tests::DEADLINE)).unwrap();
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') {
        match stream.read(&mut byte) {
            Ok(1) => line.push(byte[0]),
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&line)),
        }
    }
    line
}

fn supervisor(env: &TestEnv) -> Process {
    env.running("scvd").pop().expect("a supervisor runs")
}

#[test]
fn a_thousand_connections_are_served_and_given_back() {
    let limit = nix::sys::resource::Resource::RLIMIT_NOFILE;
    let (_, hard) = nix::sys::resource::getrlimit(limit).unwrap();
    nix::sys::resource::setrlimit(limit, hard, hard).unwrap();
    let env = running();
    let before = supervisor(&env).descriptors();
    let mut streams: Vec<UnixStream> = (0..1_010).map(|_| env.connect().unwrap()).collect();
    for stream in &mut streams {
        stream.write_all(HELLO).unwrap();
    }
    for stream in &mut streams {
        assert!(line(stream).starts_with(b"{\"type\":\"initialized\""));
    }
    let status = Wire::plain(&env).control(&json!({"action": "status"}));
    assert!(status["pid"].is_number());
    drop(streams);
    eventually("the descriptors are given back", Duration::from_secs(10), || {
        supervisor(&env).descriptors() <= before + 2
    });
    env.finish();
}

#[test]
fn a_thousand_clients_that_leave_in_the_middle_of_a_word_cost_nothing() {
    let env = running();
    let before = supervisor(&env).descriptors();
    let start = json!({"type": "session.start", "request_id": "s", "cwd": env.work()}).to_string();
    for n in 0..1_000 {
        let mut stream = env.connect().unwrap();
        let bytes: &[u8] = match n % 5 {
            0 => b"",
            1 => &HELLO[..HELLO.len() / 2],
            2 => HELLO,
            3 => b"\x00\xff\xfe garbage",
            // A whole handshake, and half of what was wanted.
            _ => &[HELLO, &start.as_bytes()[..start.len() - 1]].concat(),
        };
        let _ = stream.write_all(bytes);
    }
    eventually("the descriptors are given back", Duration::from_secs(10), || {
        supervisor(&env).descriptors() <= before + 2
    });
    assert_eq!(env.running("scv-worker").len(), 1, "the spare, and no session of anybody");
    Wire::plain(&env).control(&json!({"action": "status"}));
    env.finish();
}

#[test]
fn a_full_table_refuses_and_recovers() {
    let env = TestEnv::with_model("http://127.0.0.1:9/v1");
    let scvd = scv_tests::env::binary_path("scvd");
    let mut shell: Command = env.command_at(Path::new("/bin/bash"));
    shell.args(["-c", "ulimit -n 96; exec \"$0\" --scv-home \"$1\""]).arg(scvd).arg(env.layout().home());
    let program = Program::start(&mut shell);
    program.stdout_until("the line `ready`", |text| text.contains("ready\n"));
    let mut streams: Vec<UnixStream> = (0..200).filter_map(|_| env.connect().ok()).collect();
    for stream in &mut streams {
        let _ = stream.write_all(HELLO);
    }
    assert!(line(&mut streams[0]).starts_with(b"{\"type\":\"initialized\""), "who came first is served");
    drop(streams);
    eventually("there is room again", Duration::from_secs(10), || {
        let mut stream = env.connect().unwrap();
        stream.write_all(HELLO).is_ok() && line(&mut stream).starts_with(b"{\"type\":\"initialized\"")
    });
    Wire::plain(&env).control(&json!({"action": "status"}));
    program.signal(rustix::process::Signal::INT);
    program.wait().exits(0);
    env.finish();
}

#[test]
fn who_never_says_initialize_is_dropped_after_ten_seconds() {
    let env = running();
    let start = Instant::now();
    let mut silent = env.connect().unwrap();
    let mut half = env.connect().unwrap();
    half.write_all(&HELLO[..20]).unwrap();
    // Bytes now and then do not buy time.
    let mut wrong = env.connect().unwrap();
    wrong.write_all(STATUS).unwrap();
    assert!(String::from_utf8(line(&mut wrong)).unwrap().contains("not_initialized"));
    let mut welcome = Wire::plain(&env);
    for stream in [&mut silent, &mut half, &mut wrong] {
        line(stream);
        let took = start.elapsed();
        assert!(took + Duration::from_millis(100) >= INITIALIZE_WITHIN, "dropped after {took:?}");
        assert!(took < INITIALIZE_WITHIN + Duration::from_secs(5), "dropped after {took:?}");
    }
    welcome.control(&json!({"action": "status"}));
    env.finish();
}

#[test]
fn unfinished_lines_of_strangers_cost_bounded_memory() {
    let env = running();
    let before = supervisor(&env).anonymous_kib().unwrap();
    let chunk = vec![b'x'; 1 << 20];
    let mut streams: Vec<UnixStream> = (0..64).map(|_| env.connect().unwrap()).collect();
    for stream in &mut streams {
        stream.set_nonblocking(true).unwrap();
    }
    // Two rounds with a look in between: what the kernel did not take at once is offered again.
    for _ in 0..20 {
        for stream in &mut streams {
            let _ = stream.write(&chunk[..chunk.len() - 1]);
        }
    }
    let mut welcome = Wire::plain(&env);
    welcome.control(&json!({"action": "status"}));
    let after = supervisor(&env).anonymous_kib().unwrap();
    assert!(after < before + (24 << 10), "{before} KiB, then {after} KiB");
    drop(streams);
    welcome.control(&json!({"action": "status"}));
    env.finish();
}

/// Sends requests until the server does not take more, and reads nothing.
fn deafen(stream: &mut UnixStream) {
    stream.write_all(HELLO).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let burst = STATUS.repeat(200);
    for _ in 0..10_000 {
        if stream.write_all(&burst).is_err() {
            return;
        }
    }
    panic!("the server took two million requests of a client that does not read");
}

#[test]
fn a_client_that_never_reads_costs_a_bound_and_stops_nobody() {
    let env = running();
    let before = supervisor(&env).anonymous_kib().unwrap();
    let mut deaf = env.connect().unwrap();
    deafen(&mut deaf);
    let start = Instant::now();
    Wire::plain(&env).control(&json!({"action": "status"}));
    assert!(start.elapsed() < Duration::from_secs(2), "another client waited {:?}", start.elapsed());
    let after = supervisor(&env).anonymous_kib().unwrap();
    assert!(after < before + (64 << 10), "{before} KiB, then {after} KiB");
    env.finish();
}

#[test]
fn a_client_that_never_reads_does_not_delay_the_stop() {
    let env = running();
    let mut deaf = env.connect().unwrap();
    deafen(&mut deaf);
    let start = Instant::now();
    env.scv(&["stop"]).exits(0);
    assert!(start.elapsed() < Duration::from_secs(4), "the stop took {:?}", start.elapsed());
    env.supervisor_output().exits(0);
    env.finish();
}
