//! Bounds, each gone over.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use serde_json::json;

use super::home::{Client, Home, Scvd, eventually};

#[test]
fn more_than_a_thousand_idle_connections_do_no_harm() {
    let home = Home::new();
    let _scvd = home.start();
    let (_, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let idle: Vec<_> = (0..1100).map(|_| UnixStream::connect(home.layout.socket()).unwrap()).collect();
    home.session(None);
    eventually("all of them", || (home.status()["connections"].as_u64().unwrap() > 1100).then_some(()));
    drop(idle);
    eventually("room", || (home.status()["connections"].as_u64().unwrap() < 10).then_some(()));
}

#[test]
fn a_full_table_refuses_politely_and_recovers() {
    // With the first it counts connections, with the second the kernel has no descriptor left.
    for limit in [64, 32] {
        let home = Home::new();
        home.config("[supervisor]\nspare_workers = 0\n");
        let mut command = Command::new("sh");
        let script = format!(r#"ulimit -n {limit}; exec "$0" "$@""#);
        let scvd = home.command(&[]);
        command.args(["-c", &script]).arg(scvd.get_program()).args(scvd.get_args());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(home.log());
        let _scvd = Scvd::ready(command);
        let mut connections: Vec<Client> = (0..100).map(|_| home.connect()).collect();
        let answer = connections.last_mut().unwrap().event();
        assert_eq!((&answer["code"], &answer["fatal"]), (&json!("unavailable"), &json!(true)), "{limit}");
        assert!(connections.last_mut().unwrap().is_closed());
        connections.clear();
        eventually("room", || home.try_status());
        home.session(None);
    }
}

#[test]
fn unfinished_lines_of_all_connections_are_bounded_and_given_back() {
    let home = Home::new();
    let _scvd = home.start();
    let half = vec![b'x'; 1 << 20];
    let mut hoarders: Vec<Client> = (0..9).map(|_| home.connect()).collect();
    for hoarder in &mut hoarders {
        // The last one is refused before all of it is read.
        let _ = hoarder.stream.write_all(&half);
    }
    let mut refused = 0;
    for hoarder in &mut hoarders {
        hoarder.stream.set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
        let line = hoarder.line();
        if !line.is_empty() {
            assert!(line.contains("unavailable"), "{line}");
            refused += 1;
        }
    }
    assert_eq!(refused, 1);
    drop(hoarders);
    home.session(None);
}

#[test]
fn an_idle_supervisor_is_small_and_does_nothing() {
    let home = Home::new();
    let scvd = home.start();
    home.wait_for_spare();
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/schedstat", scvd.pid())).unwrap();
        stat.split(' ').nth(2).unwrap().trim().parse::<u64>().unwrap()
    };
    // What the status call started has to come to rest first.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let before = ticks();
    std::thread::sleep(std::time::Duration::from_secs(2));
    let slices = ticks() - before;
    assert!(slices <= 2, "it ran {slices} times in two idle seconds");
}
