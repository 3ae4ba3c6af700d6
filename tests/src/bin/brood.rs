//! A program that makes children of every kind that is hard to end, for tests.
//!
//! `brood KIND…` makes one of each and prints a line; `brood KIND… wait` then waits for ever.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for tests")]
#![allow(clippy::zombie_processes, reason = "children that nobody waits for are what it is for")]

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What children are started as; they are this program again.
const SELF: &str = "/proc/self/exe";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("sleep") => sleep(),
        Some("deaf") => {
            ignore(libc::SIGTERM);
            sleep();
        }
        // Each makes its successor and leaves, so that none is ever there to be caught; for as long
        // as a failed test may take, not for ever.
        Some("relay") => {
            let left: u32 = arguments[1].parse().unwrap();
            std::thread::sleep(Duration::from_millis(2));
            if left > 0 {
                spawn(&mut child(&["relay", &(left - 1).to_string()]));
            }
        }
        _ => {
            for kind in arguments.iter().filter(|kind| *kind != "wait") {
                make(kind);
            }
            println!("made");
            let _ = std::io::stdout().flush();
            if arguments.iter().any(|word| word == "wait") {
                sleep();
            }
        }
    }
}

fn make(kind: &str) {
    match kind {
        "plain" => spawn(&mut child(&["sleep"])),
        "orphan" => spawn(Command::new("/bin/sh").args(["-c", "/proc/$PPID/exe sleep & exit"])),
        "own-session" => spawn(Command::new("setsid").arg("-f").arg(own()).arg("sleep")),
        "no-environment" => spawn(child(&["sleep"]).env_clear()),
        "hidden" => spawn(Command::new("setsid").arg("-f").arg("env").arg("-i").arg(own()).arg("sleep")),
        "deaf" => spawn(&mut child(&["deaf"])),
        "relay" => spawn(&mut child(&["relay", "20000"])),
        "pipes" => spawn(child(&["sleep"]).stdout(Stdio::inherit()).stderr(Stdio::inherit())),
        "stopped" => {
            let mut command = child(&["sleep"]);
            let child = command.spawn().unwrap();
            let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        }
        "many" => (0..100).for_each(|_| spawn(&mut child(&["sleep"]))),
        other => panic!("{other} is no kind"),
    }
}

fn own() -> std::path::PathBuf {
    std::fs::read_link(SELF).unwrap()
}

fn child(arguments: &[&str]) -> Command {
    let mut command = Command::new(own());
    let null = || File::options().read(true).write(true).open("/dev/null").unwrap();
    command.args(arguments).stdin(null()).stdout(null()).stderr(null()).arg0("brood");
    command
}

fn spawn(command: &mut Command) {
    command.spawn().unwrap();
}

fn sleep() {
    loop {
        std::thread::sleep(Duration::from_hours(1));
    }
}

fn ignore(signal: libc::c_int) {
    let mut ignored = nix::sys::signal::SigSet::empty();
    ignored.add(nix::sys::signal::Signal::try_from(signal).unwrap());
    // Blocked is as deaf as ignored.
    ignored.thread_block().unwrap();
}
