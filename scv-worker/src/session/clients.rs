//! The clients of a session: who gets what, and what a slow one costs.
//!
//! A client that can attach and reads too slowly falls behind: its feed stops, the others go on,
//! and it catches up from the journal. A plain v3 client alone on a session slows the session
//! down instead; one that holds up others is closed after [`HOLD_UP`].

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use shared::protocol::SessionId;
use shared::protocol::client::Peer;
use shared::protocol::control::SessionState;
use shared::protocol::server::{Reply, ServerEvent, SessionAttached};
use tokio::sync::Notify;

use super::ClientId;
use super::connection::Outbound;
use super::journal::{Cursor, Journal};
use super::open::join;
use super::record::Record;
use super::setup::KEY_IS_GONE;

/// A plain client that holds up others for this long is closed (protocol, "Slow clients").
pub(crate) const HOLD_UP: Duration = Duration::from_secs(30);

/// What every client of this session is told about it when it catches up.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// The session.
    pub session_id: SessionId,
    /// Its workspace.
    pub cwd: std::path::PathBuf,
    /// Its model.
    pub model: String,
    /// Whether its key came from a client that is gone.
    pub lacks_key: bool,
    /// What else a person should know of it.
    pub note: Option<String>,
}

impl About {
    fn note(&self) -> Option<String> {
        join(self.lacks_key.then(|| KEY_IS_GONE.to_owned()), self.note.clone())
    }
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Who it said it is.
    pub peer: Peer,
    /// What it understands beyond version 3.
    pub features: Features,
    /// Whether it approves everything unasked.
    pub auto_approve: bool,
    /// Its request that joined the session.
    pub request_id: String,
    /// Whether it may still send.
    pub reading: bool,
    /// Whether the supervisor owes it an answer.
    pub relaying: bool,
    /// Its request to close the session.
    pub closing: Option<String>,
    out: Rc<Outbound>,
    feed: Feed,
    /// The last number that it was sent.
    last_seq: u64,
    full_since: Option<Instant>,
}

/// The features of a client that this session acts on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    /// `attach`: it asked for `session.attach` and its events.
    pub attach: bool,
    /// `approvals`: it is told of answered approvals.
    pub approvals: bool,
    /// `notices`: it shows what a turn waits for.
    pub notices: bool,
}

impl Features {
    /// The names of those that are in force.
    pub(crate) fn names(self) -> Vec<String> {
        let all = [("attach", self.attach), ("approvals", self.approvals), ("notices", self.notices)];
        all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.to_owned()).collect()
    }

    fn of(names: &[String]) -> Self {
        let has = |name: &str| names.iter().any(|feature| feature == name);
        Self { attach: has("attach"), approvals: has("approvals"), notices: has("notices") }
    }
}

#[derive(Debug)]
enum Feed {
    /// Gets events as they happen.
    Live,
    /// Gets events from the journal; `told` is the end of the last bracket, none before the first.
    Behind { cursor: Cursor, told: Option<u64>, state: SessionState, lagged: bool },
}

impl Client {
    /// A client that gets events as they happen, after `last_seq`.
    pub(crate) fn live(out: Rc<Outbound>, peer: Peer, features: &[String], request_id: String, last_seq: u64) -> Self {
        Self {
            peer,
            features: Features::of(features),
            auto_approve: false,
            request_id,
            reading: true,
            relaying: false,
            closing: None,
            out,
            feed: Feed::Live,
            last_seq,
            full_since: None,
        }
    }

    /// Lets the client catch up from the journal's start, with what follows `after_seq`.
    pub(crate) fn replay(&mut self, journal: &Journal, after_seq: u64, state: SessionState) {
        self.last_seq = after_seq;
        self.feed = Feed::Behind { cursor: journal.start(), told: None, state, lagged: false };
    }

    /// The last number that it was sent, once it has been sent everything.
    pub(crate) fn is_up_to(&self) -> Option<u64> {
        (matches!(self.feed, Feed::Live) && self.out.is_idle()).then_some(self.last_seq)
    }

    /// Its outbound queue.
    pub(crate) fn out(&self) -> &Outbound {
        &self.out
    }

    /// Sends a line that takes no number as it is, newline included. A client that reads so little
    /// that even answers no longer fit is cut off.
    pub(crate) fn send_line(&self, line: impl Into<Rc<[u8]>>) {
        self.out.answer(line.into());
        if self.out.is_overrun() {
            self.out.abandon();
        }
    }

    /// Sends an answer that takes no number.
    pub(crate) fn reply(&self, event: &ServerEvent) {
        self.send_line(event.to_line());
    }
}

/// All clients of a session.
#[derive(Debug)]
pub(crate) struct Clients {
    map: BTreeMap<ClientId, Client>,
    about: About,
    /// Told whenever a client has read something.
    pub room: Rc<Notify>,
}

impl Clients {
    /// No client yet.
    pub(crate) fn new(about: About) -> Self {
        Self { map: BTreeMap::new(), about, room: Rc::new(Notify::new()) }
    }

    /// Whether the session waits for a client that has its key.
    pub(crate) fn lacks_key(&self) -> bool {
        self.about.lacks_key
    }

    /// One came.
    pub(crate) fn has_key(&mut self) {
        self.about.lacks_key = false;
    }

    /// Adds a client.
    pub(crate) fn insert(&mut self, id: ClientId, client: Client) {
        self.map.insert(id, client);
    }

    /// Forgets a client.
    pub(crate) fn remove(&mut self, id: ClientId) -> Option<Client> {
        self.map.remove(&id)
    }

    /// The client.
    pub(crate) fn get(&self, id: ClientId) -> Option<&Client> {
        self.map.get(&id)
    }

    /// The client.
    pub(crate) fn get_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        self.map.get_mut(&id)
    }

    /// Every client.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClientId, &Client)> {
        self.map.iter().map(|(id, client)| (*id, client))
    }

    /// How many clients there are.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether somebody is there who can answer an approval.
    pub(crate) fn can_answer(&self) -> bool {
        self.map.values().any(|client| client.reading && (client.features.approvals || !client.features.attach))
    }

    /// Sends a numbered event to everybody; `journal` already holds it, unless it is transient.
    pub(crate) fn deliver(&mut self, event: &ServerEvent, seq: u64, journal: &Journal) {
        let mut canonical: Option<Rc<[u8]>> = None;
        let alone = self.map.len() == 1;
        for (id, client) in &mut self.map {
            if !matches!(client.feed, Feed::Live) {
                continue;
            }
            if client.features.attach && !alone && !client.out.has_room() {
                client.feed = Feed::Behind {
                    cursor: journal.start(),
                    told: Some(client.last_seq),
                    state: SessionState::Working,
                    lagged: true,
                };
                continue;
            }
            let line = match own_form(event, *id) {
                Some(own) => own.to_line().into(),
                None => canonical.get_or_insert_with(|| event.to_line().into()).clone(),
            };
            client.out.push(line);
            client.last_seq = seq;
        }
    }

    /// Sends an answer without a number to every client that `wants` it.
    pub(crate) fn tell(&self, event: &ServerEvent, wants: impl Fn(&Client) -> bool) {
        let line: Rc<[u8]> = event.to_line().into();
        for client in self.map.values().filter(|client| wants(client)) {
            client.send_line(line.clone());
        }
    }

    /// Feeds clients that are behind as far as they have room. `partial` is the text so far of an
    /// answer that streams now, as an event numbered `seq`.
    pub(crate) fn catch_up(&mut self, journal: &Journal, seq: u64, partial: Option<&ServerEvent>) {
        let about = &self.about;
        for (id, client) in &mut self.map {
            if catch_up_one(*id, client, about, journal, seq)
                && let Some(partial) = partial
            {
                let line = own_form(partial, *id).unwrap_or_else(|| partial.clone()).to_line();
                client.out.push(line.into());
                client.last_seq = client.last_seq.max(seq);
            }
        }
    }

    /// Whether the session has to wait before it says more: a client without a cursor is full.
    pub(crate) fn are_full(&mut self, now: Instant) -> bool {
        let mut full = false;
        let alone = self.map.len() == 1;
        for client in self.map.values_mut() {
            // One that can attach falls behind instead, unless it is alone: then dropping text
            // that it will read in a moment helps nobody.
            if client.out.has_room() || client.out.is_done() {
                client.full_since = None;
            } else if alone || !client.features.attach {
                client.full_since.get_or_insert(now);
                full = true;
            }
        }
        full
    }

    /// Closes plain clients that have held up others for too long; when to look again.
    pub(crate) fn close_those_in_the_way(&mut self, now: Instant) -> Option<Instant> {
        if self.map.len() < 2 {
            return None;
        }
        let mut next = None;
        for client in self.map.values_mut() {
            let Some(since) = client.full_since else { continue };
            let due = since + HOLD_UP;
            if due <= now {
                client.out.abandon();
                client.full_since = None;
            } else {
                next = Some(next.map_or(due, |next: Instant| next.min(due)));
            }
        }
        next
    }
}

/// Whether the client is live again after this.
fn catch_up_one(id: ClientId, client: &mut Client, about: &About, journal: &Journal, seq: u64) -> bool {
    let Feed::Behind { cursor, told, state, lagged } = &mut client.feed else { return false };
    if !client.out.has_room() {
        return false;
    }
    if told.is_none_or(|told| told < seq) {
        // What was not journaled is missing from a replay: the bracket says which numbers may jump.
        let lag = "this client read too slowly; text that streamed meanwhile is left out";
        let note = if *lagged { Some(lag.to_owned()) } else { about.note() };
        client.out.push(
            ServerEvent::Reply(Reply::SessionAttached(SessionAttached {
                request_id: client.request_id.clone(),
                session_id: about.session_id,
                state: *state,
                from_seq: client.last_seq + 1,
                to_seq: seq,
                cwd: about.cwd.clone(),
                model: about.model.clone(),
                note,
            }))
            .to_line()
            .into(),
        );
        *told = Some(seq);
    }
    while client.out.has_room() {
        let event = match journal.read(cursor) {
            Ok(Some(Record::Turn { event, .. })) => ServerEvent::Turn(event),
            Ok(Some(Record::Session { event, .. })) => ServerEvent::Session(event),
            Ok(Some(_)) => continue,
            Ok(None) => {
                client.feed = Feed::Live;
                return true;
            }
            Err(error) => {
                tracing::error!(%error, "cannot read the journal for a client");
                client.out.abandon();
                return false;
            }
        };
        let number = event.seq().unwrap_or(0);
        if number > client.last_seq {
            client.out.push(own_form(&event, id).unwrap_or(event).to_line().into());
            client.last_seq = number;
        }
    }
    false
}

/// The event as the client sees it that made the request: with its own request id.
fn own_form(event: &ServerEvent, id: ClientId) -> Option<ServerEvent> {
    let request_id = match event {
        ServerEvent::Turn(event) => Some(&event.request_id),
        ServerEvent::Session(event) => event.request_id.as_ref(),
        ServerEvent::Reply(_) | ServerEvent::Unknown(_) => None,
    }?;
    let own = id.strip(request_id)?.to_owned();
    let mut event = event.clone();
    match &mut event {
        ServerEvent::Turn(event) => event.request_id = own,
        ServerEvent::Session(event) => event.request_id = Some(own),
        ServerEvent::Reply(_) | ServerEvent::Unknown(_) => {}
    }
    Some(event)
}
