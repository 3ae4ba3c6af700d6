use super::*;

/// The runs of a session of its own.
pub(crate) fn runs() -> Runs {
    process::become_subreaper().unwrap();
    // No home: what the developer's own profile does is not for a test to run, or to kill halfway.
    let env =
        [("HOME", "/nonexistent"), ("PATH", "/usr/bin:/bin")].map(|(name, value)| (name.into(), value.into())).into();
    let seat = Seat { instance: "0123abcd".into(), session: SessionId::new(), depth: 0, parent: None };
    Runs::new(Family::new().unwrap(), seat, env)
}

pub(crate) fn launch(runs: &Runs, script: &str) -> Launch {
    Launch {
        handle: runs.handle("bash"),
        program: "/bin/bash".into(),
        args: vec!["-c".into(), script.into()],
        cwd: "/".into(),
        env: runs.environment().clone(),
        depth: 0,
        stdin: Stdio::null(),
        stdout: Stdio::piped(),
        stderr: Stdio::null(),
    }
}

fn names(env: &BTreeMap<String, String>) -> Vec<&str> {
    env.keys().map(String::as_str).collect()
}

#[test]
fn children_get_no_key_unless_it_is_passed() {
    let env = [("A", "sk-1"), ("HOME", "/h"), ("OPENAI_API_KEY", "sk-2"), ("SCV_API_KEY", "sk-3"), ("EMPTY", "")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let keys = ["OPENAI_API_KEY".to_owned()];
    assert_eq!(names(&environment_of_children(&env, &keys, ["sk-1", ""], &[])), ["EMPTY", "HOME"]);
    let passed = environment_of_children(&env, &keys, ["sk-1"], &["A".to_owned(), "OPENAI_API_KEY".to_owned()]);
    assert_eq!(names(&passed), ["A", "EMPTY", "HOME", "OPENAI_API_KEY"]);
}

#[tokio::test]
async fn a_killed_run_is_ended_by_its_owner_and_unknown_ones_are_told_apart() {
    let runs = runs();
    let mut run = runs.start(launch(&runs, "sleep 60")).unwrap();
    let handle = run.tag().handle.clone();
    assert_eq!(runs.handles(), std::slice::from_ref(&handle));
    let owner = async {
        let killed = run.killed();
        tokio::select! {
            () = killed.cancelled() => {}
            _ = run.exited() => panic!("it was not killed"),
        }
        run.end(End::Terminate { grace: process::GRACE }).await
    };
    let (end, found) = tokio::join!(owner, runs.kill(&handle));
    assert!(found);
    assert_eq!(end.exit.signal, Some(15));
    assert_eq!(runs.handles(), Vec::<String>::new());
    assert!(!runs.kill(&handle).await);
}

#[tokio::test]
async fn the_end_of_all_takes_runs_whose_owner_does_not_look() {
    let runs = runs();
    let mut run = runs.start(launch(&runs, "trap '' TERM; sleep 60 & wait")).unwrap();
    runs.end_all(Duration::ZERO).await;
    assert_eq!(run.exited().await.signal, Some(9));
    run.end(End::Kill).await;
}

#[tokio::test]
async fn a_dropped_run_is_not_listed() {
    let runs = runs();
    let run = runs.start(launch(&runs, "sleep 60")).unwrap();
    let leader = run.identity().clone();
    drop(run);
    assert_eq!(runs.handles(), Vec::<String>::new());
    leader.exited().await.unwrap();
}
