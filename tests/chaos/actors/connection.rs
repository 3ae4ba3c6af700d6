//! One connection of an actor: lines out, events in.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::world::World;

/// The first answer comes within this, or somebody is deaf.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// One connection.
pub(super) struct Connection {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    line: Vec<u8>,
    requests: u64,
}

impl Connection {
    /// Connects and shakes hands.
    pub(super) fn open(world: &dyn World, name: &str, features: &[&str]) -> Result<Self, String> {
        let stream = world.connect().map_err(|error| format!("cannot connect: {error}"))?;
        stream.set_read_timeout(Some(ANSWERED_WITHIN)).unwrap();
        stream.set_write_timeout(Some(ANSWERED_WITHIN)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        let mut connection = Self { stream, lines, line: Vec::new(), requests: 0 };
        connection.send(json!({"type": "initialize", "protocol_version": 3,
            "client": {"name": name, "version": "1"}, "features": features}));
        Ok(connection)
    }

    /// How long [`next`](Self::next) waits from now on.
    pub(super) fn patience(&self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience.max(Duration::from_millis(1)))).unwrap();
    }

    /// Sends a request; its id. That the other side is gone is seen where it is read.
    pub(super) fn send(&mut self, mut message: Value) -> String {
        self.requests += 1;
        let id = format!("q{}", self.requests);
        message["request_id"] = json!(id);
        self.send_bytes(format!("{message}\n").as_bytes());
        id
    }

    /// Sends bytes as they are.
    pub(super) fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The next event; none if nothing comes in time.
    pub(super) fn next(&mut self) -> Result<Option<Value>, String> {
        match self.lines.read_until(b'\n', &mut self.line) {
            Ok(0) => Err("end".into()),
            Ok(_) if self.line.ends_with(b"\n") => {
                let event = serde_json::from_slice(&self.line).map_err(|error| format!("no JSON: {error}"));
                self.line.clear();
                event.map(Some)
            }
            // A worker that was killed in the middle of a line.
            Ok(_) => Err("end within a line".into()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The next event, which has to come.
    pub(super) fn answer(&mut self) -> Result<Value, String> {
        self.next()?.ok_or_else(|| format!("no answer in {ANSWERED_WITHIN:?}"))
    }
}
