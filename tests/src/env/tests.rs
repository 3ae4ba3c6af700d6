use super::*;

#[test]
fn a_process_left_behind_fails_the_test_and_is_ended() {
    let env = TestEnv::new();
    // It leaves the group and the session, clears its environment, and its parent is gone.
    let script = "setsid env -i sleep 600 >/dev/null 2>&1 & echo $!";
    let output = Program::start(env.command_at(Path::new("/bin/bash")).args(["-c", script])).wait();
    let pid: i32 = output.exits(0).stdout.trim().parse().unwrap();
    eventually("it sleeps", Duration::from_secs(5), || Process::of(pid).is_some_and(|left| left.name == "sleep"));
    let left = Process::of(pid).unwrap();
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| env.stop_within(Duration::from_millis(50))));
    let said = *failed.unwrap_err().downcast::<String>().unwrap();
    assert!(said.contains(&format!("{pid} (parent {}", std::process::id())) && said.contains("sleep 600"), "{said}");
    assert!(left.gone_within(Duration::from_secs(5)));
}

#[test]
fn an_instance_that_started_nothing_ends_quietly() {
    TestEnv::new().finish();
}

#[test]
fn programs_see_nothing_of_the_tester() {
    let env = TestEnv::new().var("EXTRA", "1");
    let output = Program::start(&mut env.command_at(Path::new("/usr/bin/env"))).wait();
    let names: Vec<&str> = output.stdout.lines().filter_map(|line| line.split('=').next()).collect();
    assert_eq!(
        names,
        ["EXTRA", "HOME", "LANG", "PATH", "SCV_HOME", "SHELL", "TEST_ENV_ROOT", "TMPDIR", "USER", "XDG_RUNTIME_DIR"],
        "{output:?}"
    );
    env.finish();
}
