//! Sockets that go away, and strangers at the door.

use std::io::Write as _;
use std::time::Duration;

use crate::world::World;

pub(super) fn remove_socket(world: &dyn World) -> Option<String> {
    std::fs::remove_file(world.state().join("server.sock")).ok()?;
    Some(String::new())
}

pub(super) fn remove_link(world: &dyn World, random: &mut fastrand::Rng) -> Option<String> {
    let bundles = std::fs::read_dir(world.state().join("workers")).ok()?;
    let bundle = random.choice(bundles.flatten().collect::<Vec<_>>())?;
    std::fs::remove_file(bundle.path().join("control.sock")).ok()?;
    Some(bundle.file_name().to_string_lossy().into_owned())
}

pub(super) fn strangers(world: &dyn World, random: &mut fastrand::Rng) -> Option<String> {
    let many = random.usize(1..40);
    let what = random.choice([
        Vec::new(),
        b"{\"type\":\"init".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 4096],
        vec![b'x'; 2 << 20],
        b"{\"type\":\"session.start\",\"request_id\":\"1\",\"cwd\":\"/\"}\n".to_vec(),
    ])?;
    let mut there = Vec::new();
    for _ in 0..many {
        let mut stream = world.connect().ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(100))).ok()?;
        let _ = stream.write_all(&what);
        there.push(stream);
    }
    Some(format!("{many} who say {} bytes", what.len()))
}
