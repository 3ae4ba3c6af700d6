//! A home whose socket leads to another home's supervisor, and cuts connections on the way.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use shared::link::SocketAddress;

use crate::env::TestEnv;

/// The home in front of the real one.
#[derive(Debug)]
pub struct Cutting {
    home: tempfile::TempDir,
    lives: Arc<Mutex<Vec<usize>>>,
    cuts: Arc<Mutex<usize>>,
}

impl Cutting {
    /// A home in front of `env`'s. Its connections live for so many bytes from the server, first
    /// first; those after them are not cut.
    pub fn before(env: &TestEnv, lives: &[usize]) -> Self {
        let home = tempfile::Builder::new().prefix("scv-cutting-").tempdir().expect("a temporary directory");
        let state = home.path().join("state");
        fs::create_dir(&state).expect("a directory");
        fs::copy(env.layout().config(), home.path().join("config.toml")).expect("a configuration");
        let listener = UnixListener::bind(state.join("server.sock")).expect("a short path");
        let lives = Arc::new(Mutex::new(lives.iter().rev().copied().collect::<Vec<_>>()));
        let cuts = Arc::new(Mutex::new(0));
        let (real, mine, count) = (env.layout().socket(), Arc::clone(&lives), Arc::clone(&cuts));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let life = mine.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let (real, count) = (real.clone(), Arc::clone(&count));
                std::thread::spawn(move || {
                    if pass(&client, &real, life).is_ok_and(|was_cut| was_cut) {
                        *count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                    }
                });
            }
        });
        Self { home, lives, cuts }
    }

    /// Its path.
    pub fn home(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    /// Connections that were cut.
    pub fn cuts(&self) -> usize {
        *self.cuts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts that no connection has come for.
    pub fn left(&self) -> usize {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Passes bytes on in both directions; whether the connection was cut.
fn pass(client: &UnixStream, upstream: &Path, life: Option<usize>) -> io::Result<bool> {
    let server = UnixStream::connect(SocketAddress::of(upstream)?.path())?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let (mut from_server, mut to_client) = (&server, client);
    let mut left = life.unwrap_or(usize::MAX);
    let mut chunk = [0; 4096];
    let was_cut = loop {
        let room = chunk.len().min(left);
        if room == 0 {
            break true;
        }
        let read = from_server.read(&mut chunk[..room])?;
        if read == 0 {
            break false;
        }
        to_client.write_all(&chunk[..read])?;
        left -= read;
    };
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
    Ok(was_cut)
}
