//! What a machine can do to SCV: a full disk, a home that cannot be written, a binary that is
//! missing or of another release. Each gets one clear sentence and an exit code.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use scv_tests::env::binary_path;
use scv_tests::{Output, Program, TestEnv};

const NOBODY: &str = "http://127.0.0.1:9/v1";

/// Runs a script in a mount namespace of its own, as root of it; `$SCV` is our command.
fn in_own_mounts(env: &TestEnv, script: &str) -> Output {
    let mut command = env.command_at(Path::new("/usr/bin/unshare"));
    command.args(["--mount", "--propagation", "private"]);
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["/bin/bash", "-euc", script]).env("SCV", binary_path("scv"));
    Program::start(&mut command).wait()
}

/// A copy of the named binaries in a directory of their own.
fn installation(env: &TestEnv, binaries: &[&str]) -> PathBuf {
    let dir = env.root().join("bin");
    fs::create_dir(&dir).unwrap();
    for binary in binaries {
        fs::copy(binary_path(binary), dir.join(binary)).unwrap();
    }
    dir
}

#[track_caller]
fn one_sentence(output: &Output, words: &[&str]) {
    assert!(output.stderr.starts_with("error: "), "{output:?}");
    for word in words {
        assert!(output.stderr.contains(word), "{word:?} is not named: {output:?}");
    }
    assert!(!output.stderr.contains("panicked"), "{output:?}");
    assert!(output.took < Duration::from_secs(30), "{output:?}");
}

#[test]
fn a_home_that_cannot_be_written_is_said() {
    let env = TestEnv::with_model(NOBODY);
    let output = in_own_mounts(
        &env,
        "mount --bind \"$SCV_HOME\" \"$SCV_HOME\"; mount -o remount,ro,bind \"$SCV_HOME\"; exec \"$SCV\" exec hello",
    );
    output.exits(1);
    one_sentence(&output, &[env.layout().home().to_str().unwrap(), "ead-only"]);
    env.finish();
}

#[test]
fn a_full_disk_is_said() {
    let env = TestEnv::with_model(NOBODY);
    env.layout().create().unwrap();
    let output = in_own_mounts(
        &env,
        "mount -t tmpfs -o size=64k none \"$SCV_HOME/state\"; \
         head -c 100000 /dev/zero >\"$SCV_HOME/state/filler\" 2>&1 | true; exec \"$SCV\" exec hello",
    );
    assert!(output.status.code().is_some_and(|code| code == 1 || code == 2), "{output:?}");
    one_sentence(&output, &["pace"]);
    env.finish();
}

#[test]
fn a_missing_supervisor_is_named() {
    let env = TestEnv::with_model(NOBODY);
    let dir = installation(&env, &["scv", "scv-worker"]);
    let output = Program::start(env.command_at(&dir.join("scv")).args(["exec", "hello"])).wait();
    output.exits(2);
    one_sentence(&output, &["scvd"]);
    env.finish();
}

#[test]
fn a_missing_worker_is_named() {
    let env = TestEnv::with_model(NOBODY);
    let dir = installation(&env, &["scv", "scvd"]);
    let output = Program::start(env.command_at(&dir.join("scv")).args(["exec", "hello"])).wait();
    output.exits(2);
    one_sentence(&output, &["scv-worker"]);
    env.finish();
}

#[test]
fn a_supervisor_of_another_release_is_refused() {
    let env = TestEnv::with_model(NOBODY);
    let dir = installation(&env, &["scv", "scv-worker"]);
    let scvd = dir.join("scvd");
    fs::write(&scvd, "#!/bin/sh\necho scvd 99.7.5\n").unwrap();
    fs::set_permissions(&scvd, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Program::start(env.command_at(&dir.join("scv")).args(["exec", "hello"])).wait();
    output.exits(2);
    one_sentence(&output, &["scvd", "99.7.5", shared::RELEASE]);
    env.finish();
}

#[test]
fn every_binary_tells_its_release() {
    let env = TestEnv::new();
    for binary in ["scv", "scvd", "scv-worker"] {
        let output = Program::start(env.command(binary).arg("--version")).wait();
        assert_eq!(output.exits(0).stdout, format!("{binary} {}\n", shared::RELEASE));
    }
    env.finish();
}
