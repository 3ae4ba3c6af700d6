//! An idle session goes to a newer worker: its lock, its clients, and what is in no file. They are
//! given to the supervisor, which passes them on; clients notice nothing.
//!
//! Whatever dies on the way, the journal has everything: then the clients see the end of their
//! connections, and attach again at the number that they know.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use shared::fs::Lock;
use shared::link::{HandOver, MovedClient, ToSupervisor};
use shared::process::Family;
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use super::clients::Client;
use super::connection::{self, Connection, Io};
use super::open::Opening;
use super::setup::{Secrets, Setup};
use super::{ClientId, Ended, Input, Session};

/// A supervisor that reads takes each piece at once.
const GIVEN_WITHIN: Duration = Duration::from_secs(5);

/// What a session is taken over with.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(super) lock: Lock,
    pub(super) secrets: Secrets,
    pub(super) seq: u64,
    pub(super) next_client: u64,
}

impl Moved {
    /// As it came from the supervisor.
    pub(crate) fn of(given: HandOver, seq: u64, next_client: u64) -> Self {
        let HandOver { socket: lock, bytes } = given;
        // Without them the session asks for its key, as after a crash.
        let secrets: BTreeMap<String, String> = serde_json::from_slice(&bytes).unwrap_or_default();
        let secrets = secrets.into_iter().map(|(name, value)| (name, SecretString::from(value))).collect();
        Self { lock: Lock::inherited(File::from(lock)), secrets, seq, next_client }
    }
}

impl Session {
    /// Whether nothing would be lost: nothing runs, nobody waits, and every client has read all
    /// that it was told. One that does not read keeps the session where it is.
    pub(super) fn can_move(&self) -> bool {
        let is_still = self.running.is_none()
            && self.leaving.is_none()
            && self.owed.is_empty()
            && self.broker.len() == 0
            && (self.state.queue.is_empty() || self.state.paused);
        let is_ready = |client: &Client| {
            client.is_up_to().is_some() && client.reading && !client.relaying && client.closing.is_none()
        };
        is_still && self.link.is_up() && self.clients.iter().all(|(_, client)| is_ready(client))
    }

    /// Whether another worker could open this session now. Where it could not, as with a
    /// configuration that was broken meanwhile, the session stays where it is.
    pub(super) fn opens_again(&mut self) -> bool {
        let Ok(family) = Family::new() else { return false };
        let (layout, link) = (self.layout.clone(), self.link.clone());
        let opening = Opening { layout, id: self.id, link, family, config_path: None, moved: None };
        match Setup::read(&opening, None, None, &self.secrets, &self.dir) {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(%error, "this worker is not renewed: another one could not open its session");
                self.renew = false;
                false
            }
        }
    }

    /// Gives everything away.
    pub(super) async fn give_away(mut self) -> Ended {
        let mut leavers = self.stop_connections();
        let mut unheard = Vec::new();
        for at in 0..leavers.len() {
            let Some(mut rest) = leavers[at].rest.take() else { continue };
            // A reader that waits for room in the inbox ends once there is some.
            let read = loop {
                tokio::select! {
                    read = &mut rest => break read,
                    Some(input) = self.inputs.recv() => late(input, &mut leavers, &mut unheard),
                }
            };
            // A client that has ended its side has sent nothing more.
            leavers[at].partial = read.unwrap_or_default();
        }
        // From here on the supervisor is told that its clients come too late.
        self.inputs.close();
        while let Some(input) = self.inputs.recv().await {
            late(input, &mut leavers, &mut unheard);
        }
        let given = tokio::time::timeout(GIVEN_WITHIN, self.give_all(leavers, unheard)).await;
        if let Err(error) = given.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            tracing::error!(%error, "the supervisor did not take this session; its clients have to attach again");
        }
        Ended::Moved
    }

    fn stop_connections(&mut self) -> Vec<Leaver> {
        let ids: Vec<ClientId> = self.clients.iter().map(|(id, _)| id).collect();
        let mut leavers = Vec::new();
        for id in ids {
            let Some(client) = self.clients.remove(id) else { continue };
            match client.out().give() {
                Ok((socket, rest)) => leavers.push(Leaver { id, client, socket, rest, lines: vec![], partial: vec![] }),
                Err(error) => {
                    tracing::warn!(%error, "a client has to attach again");
                    client.out().close();
                }
            }
        }
        leavers
    }

    async fn give_all(&self, leavers: Vec<Leaver>, unheard: Vec<Connection>) -> io::Result<()> {
        for leaver in leavers {
            let Leaver { id, client, socket, lines, partial, .. } = leaver;
            let bytes = [lines, partial].concat();
            let moved = MovedClient {
                number: id.0,
                peer: client.peer.clone(),
                features: client.features.names(),
                auto_approve: client.auto_approve,
                request_id: client.request_id.clone(),
                last_seq: client.is_up_to().unwrap_or(self.state.seq),
            };
            let message = ToSupervisor::Client { client: Box::new(moved), len: bytes.len() };
            self.link.give(message, socket, bytes).await?;
        }
        for Connection { peer, features, io, first } in unheard {
            let Io::Socket(stream) = io else { continue };
            let socket = OwnedFd::from(stream.into_std()?);
            self.link.give(ToSupervisor::Unheard { features, peer, len: first.len() }, socket, first).await?;
        }
        let secrets: BTreeMap<&String, &str> =
            self.secrets.iter().map(|(name, secret)| (name, secret.expose_secret())).collect();
        let bytes = serde_json::to_vec(&secrets)?;
        let lock = OwnedFd::from(self.lock.file().try_clone()?);
        let (seq, next_client) = (self.state.seq, self.next_client);
        self.link.give(ToSupervisor::Moved { seq, next_client, len: bytes.len() }, lock, bytes).await
    }

    /// A client of the worker that had this session before. Call it before the session runs: then
    /// each client gets whatever happens from now on.
    pub(crate) fn joined_before(&mut self, moved: MovedClient, stream: UnixStream, bytes: Vec<u8>) {
        let MovedClient { number, peer, features, auto_approve, request_id, last_seq } = moved;
        let id = ClientId(number);
        self.next_client = self.next_client.max(number + 1);
        match connection::run(id, Io::Socket(stream), bytes, self.inputs_in.clone(), self.clients.room.clone()) {
            Ok(out) => {
                let mut client = Client::live(out, peer, &features, request_id, last_seq);
                client.auto_approve = auto_approve;
                self.clients.insert(id, client);
            }
            Err(error) => tracing::warn!(%error, "cannot serve a client"),
        }
    }
}

/// A client on its way out.
struct Leaver {
    id: ClientId,
    client: Client,
    socket: OwnedFd,
    rest: Option<oneshot::Receiver<Vec<u8>>>,
    /// Whole lines that nobody has looked at.
    lines: Vec<u8>,
    /// What was read behind them.
    partial: Vec<u8>,
}

/// What comes while the session is given away is for the next worker.
fn late(input: Input, leavers: &mut [Leaver], unheard: &mut Vec<Connection>) {
    match input {
        Input::Connected(connection) => unheard.push(*connection),
        Input::Line { client, line } => {
            if let Some(leaver) = leavers.iter_mut().find(|leaver| leaver.id == client) {
                leaver.lines.extend(line);
                leaver.lines.push(b'\n');
            }
        }
        Input::TooLong { client } => {
            if let Some(leaver) = leavers.iter().find(|leaver| leaver.id == client) {
                leaver.client.reply(&super::inbox::too_long());
            }
        }
        // The next worker sees the same end, and is told the rest by the supervisor.
        Input::Eof { .. }
        | Input::Gone { .. }
        | Input::Relayed { .. }
        | Input::SupervisorUp
        | Input::Renew
        | Input::Kill { .. }
        | Input::MayLeave
        | Input::End(_) => {}
    }
}
