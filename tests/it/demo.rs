//! `scv demo`: the README's first command.

use scv_tests::TestEnv;

#[test]
fn the_demo_tells_its_story_and_leaves_nothing() {
    let env = TestEnv::new();
    let told = env.scv(&["demo"]);
    told.exits(0);
    for part in [
        "< read: done",
        "< write: done",
        "step 4 of 4",
        "yes (the demo answers)",
        "✓ the agent reported",
        "killing worker",
        "✓ the interrupted turn is told once",
        "✓ nothing of the dead worker runs any more",
        "✓ the session remembers",
        "Everything that was started is gone",
    ] {
        assert!(told.stdout.contains(part), "{part:?} is missing in\n{}", told.stdout);
    }
    assert!(!told.stdout.contains("STILL HERE"), "{}", told.stdout);
    // Neither in the caller's home: the demo has a home of its own.
    assert!(!env.layout().config().exists() && !env.layout().socket().exists());
    env.finish();
}
