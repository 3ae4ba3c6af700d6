//! Real processes, each as hostile as the field has them.

use std::time::{Duration, Instant};

use super::*;
use crate::protocol::SessionId;

fn tag() -> Tag {
    let id = uuid::Uuid::now_v7();
    Tag {
        instance: "0123abcd".into(),
        session: SessionId::from(id),
        handle: format!("bash-{:06x}", id.as_u128() & 0xff_ffff),
        depth: 0,
        inherited: None,
    }
}

fn family() -> Family {
    become_subreaper().unwrap();
    Family::new().unwrap()
}

/// Starts `script`, and returns once it has printed a line.
async fn start(script: &str) -> Run {
    use tokio::io::AsyncBufReadExt as _;
    let mut run = Run::start(
        &family(),
        Start {
            program: "/bin/bash".into(),
            args: vec!["-c".into(), script.into()],
            cwd: "/".into(),
            env: vec![("PATH".into(), std::env::var_os("PATH").unwrap())],
            stdin: std::process::Stdio::null(),
            stdout: std::process::Stdio::piped(),
            stderr: std::process::Stdio::null(),
            tag: tag(),
        },
    )
    .unwrap();
    let mut line = String::new();
    let mut stdout = tokio::io::BufReader::new(run.take_stdout().unwrap());
    stdout.read_line(&mut line).await.unwrap();
    assert_eq!(line, "up\n");
    run
}

/// What lives and carries `tag`, in the whole machine.
fn living(tag: &Tag) -> Vec<Identity> {
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| Marks::of(*pid).names(tag))
        .filter_map(|pid| Identity::of(pid).ok())
        .filter(Identity::is_alive)
        .collect()
}

/// Ends `script` in `how` and checks that nothing of it is left, within `bound`.
async fn ends(script: &str, how: End, bound: Duration) -> RunEnd {
    let run = start(script).await;
    let tag = run.tag().clone();
    let leader = run.identity().clone();
    let began = Instant::now();
    let end = run.end(how).await;
    let took = began.elapsed();
    assert_eq!(living(&tag), Vec::new());
    assert!(Identity::of(leader.pid).is_ok_and(|now| now != leader) || Identity::of(leader.pid).is_err(), "a zombie");
    assert!(took < bound, "took {took:?}");
    end
}

const QUICK: Duration = Duration::from_millis(700);
const TERM: End = End::Terminate { grace: GRACE };

#[tokio::test]
async fn a_child_that_honours_term_ends_at_once() {
    let end = ends("sleep 60 & echo up; wait", TERM, QUICK).await;
    assert_eq!(end.exit.signal, Some(15));
    assert_eq!(end.left.len(), 1, "{:?}", end.left);
}

#[tokio::test]
async fn a_child_that_ignores_term_is_killed_after_the_grace() {
    let began = Instant::now();
    let grace = Duration::from_millis(300);
    let end =
        ends("trap '' TERM; echo up; while :; do sleep 60; done", End::Terminate { grace }, Duration::from_secs(2))
            .await;
    assert!(began.elapsed() >= grace);
    assert_eq!(end.exit.signal, Some(9));
}

#[tokio::test]
async fn term_lets_a_program_clean_up() {
    let end = ends("trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done", TERM, QUICK).await;
    assert_eq!(end.exit.to_string(), "exit status: 7");
}

#[tokio::test]
async fn a_stopped_process_hears_term() {
    let end = ends("(echo up; kill -STOP $BASHPID) ; sleep 60", TERM, QUICK).await;
    assert_eq!(end.exit.signal, Some(15));
}

#[tokio::test]
async fn kill_asks_nobody() {
    let end = ends("trap '' TERM; setsid sleep 60 & echo up; wait", End::Kill, QUICK).await;
    assert_eq!(end.exit.signal, Some(9));
}

#[tokio::test]
async fn what_a_finished_leader_left_is_ended_whatever_it_did_to_hide() {
    for script in [
        "sleep 60 & echo up",
        "setsid sleep 60 & echo up",
        "setsid --fork sleep 60; echo up",
        "(setsid sleep 60 & setsid sleep 60 &) ; echo up",
        "env -i setsid sleep 60 & echo up",
        "env -i setsid --fork bash -c 'setsid --fork sleep 60; sleep 60'; echo up",
        "setsid --fork nohup bash -c 'trap \"\" HUP INT; sleep 60 & wait' >/dev/null 2>&1; echo up",
    ] {
        let mut run = start(script).await;
        run.exited().await;
        let tag = run.tag().clone();
        let began = Instant::now();
        let end = run.end(End::Finished).await;
        assert!(began.elapsed() < QUICK, "{script} took {:?}", began.elapsed());
        assert_eq!(living(&tag), Vec::new(), "{script}");
        assert_eq!(end.exit.code, Some(0), "{script}");
        assert!(!end.left.is_empty(), "{script}");
    }
}

#[tokio::test]
async fn one_that_forks_out_of_the_way_for_ever_is_caught() {
    for script in [
        "echo up; while :; do setsid sleep 60 & done",
        // Each generation leaves and is succeeded by the next, in a session of its own.
        "export next='setsid --fork bash -c \"\\$next\"'; setsid --fork bash -c \"$next\"; echo up",
    ] {
        ends(script, End::Kill, Duration::from_secs(4)).await;
    }
}

#[tokio::test]
async fn only_its_own_processes_are_ended() {
    let other = start("env -i setsid --fork sleep 60; setsid --fork sleep 60; echo up; sleep 60").await;
    ends("env -i setsid --fork sleep 60; echo up", End::Kill, QUICK).await;
    assert_eq!(living(other.tag()).len(), 4 - 1);
    other.end(End::Kill).await;
}

#[tokio::test]
async fn a_dropped_run_is_killed_and_collected() {
    let run = start("trap '' TERM; env -i setsid --fork sleep 60; setsid sleep 60 & echo up; wait").await;
    let (tag, leader) = (run.tag().clone(), run.identity().clone());
    drop(run);
    let family = family();
    let gone = async {
        let mut child = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::child()).unwrap();
        while Identity::of(leader.pid).is_ok_and(|now| now == leader) || !living(&tag).is_empty() {
            family.reap_adopted();
            tokio::select! {
                _ = child.recv() => {}
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(2), gone).await.unwrap();
}

#[tokio::test]
async fn fifty_runs_leave_no_zombie_and_no_child() {
    for _ in 0..50 {
        let mut run = start("(sleep 60 &) ; setsid --fork true; echo up").await;
        run.exited().await;
        let tag = run.tag().clone();
        let pid = run.pid();
        run.end(End::Finished).await;
        assert_eq!(living(&tag), Vec::new());
        assert!(!children(std::process::id().cast_signed()).contains(&pid));
    }
}

#[tokio::test]
async fn an_exit_is_seen_before_it_is_collected() {
    let mut run = start("echo up; exit 3").await;
    assert_eq!(run.exited().await.code, Some(3));
    assert_eq!(run.exited().await.code, Some(3));
    assert!(Identity::of(run.pid()).is_ok_and(|id| id == *run.identity() && !id.is_alive()));
    assert_eq!(
        run.end(End::Finished).await,
        RunEnd { exit: Exit { code: Some(3), signal: None }, left: Vec::new(), oom_kills: 0 }
    );
}

#[tokio::test]
async fn a_run_does_not_leave_its_mark_on_us() {
    let run = start("echo up; sleep 60").await;
    assert!(Marks::of(run.pid()).names(run.tag()));
    assert!(!Marks::of(std::process::id().cast_signed()).names(run.tag()));
    run.end(End::Kill).await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error_and_no_child() {
    let error = family().spawn(&mut tokio::process::Command::new("/no/such/program")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[tokio::test]
async fn a_run_during_which_memory_ran_out_says_so() {
    // Plain files in the place of a cgroup: only a kernel that counts memory writes this one.
    let dir = tempfile::tempdir().unwrap();
    let events = dir.path().join("memory.events");
    let count = |kills: u32| std::fs::write(&events, format!("low 0\noom 9\noom_kill {kills}\n")).unwrap();
    count(3);
    family().keep_runs_in(Cgroup::at(dir.path().to_owned()));
    let mut run = start("echo up; kill -KILL $$").await;
    run.exited().await;
    count(5);
    let end = run.end(End::Finished).await;
    assert_eq!(end, RunEnd { exit: Exit { code: None, signal: Some(9) }, left: Vec::new(), oom_kills: 2 });
    assert_eq!(
        end.out_of_memory().unwrap(),
        "memory ran out meanwhile, and the kernel killed 2 processes of this session"
    );
    assert_eq!(start("echo up").await.end(End::Finished).await.out_of_memory(), None);
}
