//! Several homes, odd paths, and who serves a home: each is a unit of its own, and one supervisor.

use rustix::process::Signal;
use scv_tests::fakes::model::Reply;
use scv_tests::systemd::Systemd;
use scv_tests::{DEADLINE, eventually};

#[test]
fn two_homes_are_two_units_and_the_end_of_one_is_not_the_others() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    model.answer(|_| Some(Reply::text("The door is blue.")));
    let (first, second) = (systemd.home(&model.url()), systemd.home_at("/home/scvtest/other", &model.url()));
    for home in [&first, &second] {
        home.scv(&["start"]).exits(0);
    }
    let mut wire = second.wire(&["attach"]);
    let session = second.session(&mut wire);
    assert_eq!(systemd.running("scvd").len(), 2);

    first.scv(&["stop", "--uninstall"]).exits(0);
    assert_eq!(systemd.property(&first.service(), "LoadState"), "not-found");
    assert_eq!(systemd.property(&second.service(), "ActiveState"), "active");
    wire.prompt(&session, "Which colour has the door?");
    let end = wire.turn().pop().unwrap();
    assert_eq!(end["type"], "turn.completed", "{end}");
    drop(wire);
    second.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}

#[test]
fn a_home_of_any_name_is_served_and_its_units_are_valid() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    model.answer(|_| Some(Reply::text("The door is blue.")));
    let home = systemd.home_at("/home/scvtest/a b%h$HOME \"q\" 'x'\\n ü", &model.url());
    home.scv(&["start"]).exits(0);
    let units = format!("/home/scvtest/.config/systemd/user/{}", home.service());
    let verified = systemd.user(&["systemd-analyze", "--user", "verify", &units]);
    assert_eq!((verified.exits(0).stderr.as_str(), verified.stdout.as_str()), ("", ""));
    assert_eq!(home.scv(&["exec", "Which colour has the door?"]).exits(0).stdout, "The door is blue.\n");
    let status = home.scv(&["status"]);
    assert!(status.exits(0).stdout.contains(&home.path), "{status:?}");
    home.scv(&["stop", "--uninstall"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}

#[test]
fn a_guard_and_a_service_do_not_fight_over_one_home() {
    let systemd = Systemd::boot();
    let model = systemd.model();
    model.answer(|_| Some(Reply::text("The door is blue.")));
    let home = systemd.home(&model.url());
    // Units that are left from before, and a guard that was asked for.
    home.scv(&["start"]).exits(0);
    home.scv(&["stop"]).exits(0);
    let started = home.scv(&["start", "--no-service"]);
    assert!(!started.exits(0).stdout.contains(&home.service()), "{started:?}");
    let guarded = pids(&systemd);

    let again = home.scv(&["start"]);
    assert!(again.exits(0).stderr.contains("runs without systemd"), "{again:?}");
    // By hand, and at a boot: the path stays the guard's.
    let by_hand = systemd.user(&["systemctl", "--user", "start", &home.service()]);
    assert_ne!(by_hand.code(), 0, "{by_hand:?}");
    // Not by its unit: the journal reads a line's cgroup afterwards, and who wrote this one is gone by then.
    eventually("the journal names who serves", DEADLINE, || {
        let log = systemd.user(&["journalctl", "--user", "--no-pager"]).stdout;
        log.contains("another scvd (pid ") && log.contains("serves this home")
    });
    assert_eq!(systemd.property(&home.socket(), "ActiveState"), "failed");
    assert_eq!(home.scv(&["exec", "Which colour has the door?"]).exits(0).stdout, "The door is blue.\n");
    assert_eq!(pids(&systemd), guarded, "the guard's goes on");

    // Where its socket is gone and cannot be made again, it is named.
    let socket = format!("{}/state/server.sock", home.path);
    systemd.user(&["sh", "-c", &format!("rm {socket}; mkdir {socket}")]).exits(0);
    let refused = home.scv(&["exec", "Which colour has the door?"]);
    assert!(refused.exits(1).stderr.contains("serves this home without systemd"), "{refused:?}");
    assert_eq!(pids(&systemd), guarded);
    systemd.user(&["rmdir", &socket]).exits(0);
    for scvd in systemd.running("scvd") {
        scvd.signal(Signal::INT);
    }
    systemd.nothing_of_ours_is_left(DEADLINE);
    home.scv(&["start"]).exits(0);
    assert_eq!(systemd.property(&home.service(), "ActiveState"), "active");
    home.scv(&["stop"]).exits(0);
    systemd.nothing_of_ours_is_left(DEADLINE);
}

fn pids(systemd: &Systemd) -> Vec<i32> {
    systemd.running("scvd").iter().map(|scvd| scvd.pid).collect()
}
