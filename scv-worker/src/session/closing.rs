//! How a session's worker leaves: runs end, everybody hears why, the supervisor agrees.
//!
//! Closing ends processes, not data. What leaves a turn behind says so in the journal.

use std::time::Duration;

use shared::clock;
use shared::link::ToSupervisor;
use shared::protocol::ErrorCode;
use shared::protocol::client::OnDisconnect;
use shared::protocol::control::SessionState;
use shared::protocol::server::{Reply, ServerEvent, TurnBody};
use tokio::time::Instant;

use super::{ClientId, Ended, FAREWELL, Session};

/// A cancelled turn has ended by then, or its processes are killed (2 s grace, then the kill).
const TURN_ENDS_WITHIN: Duration = Duration::from_millis(2800);

/// A supervisor that stops kills workers after 2 s; the turn's end is told and kept before that.
const TURN_STOPS_WITHIN: Duration = Duration::from_millis(1500);

/// The supervisor answers within this, or is taken for gone.
const SUPERVISOR_ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// A session on its way out.
#[derive(Debug)]
pub(super) struct Leaving {
    why: Ended,
    /// By when the running turn has to be over.
    turn_by: Instant,
    /// Since when the supervisor is asked.
    asked: Option<Instant>,
    allowed: bool,
}

impl Leaving {
    /// When something is due.
    pub(super) fn deadline(&self) -> Instant {
        self.asked.map_or(self.turn_by, |asked| asked + SUPERVISOR_ANSWERS_WITHIN)
    }
}

impl Session {
    /// Begins to leave: the turn is cancelled, nothing new is accepted.
    pub(super) fn leave(&mut self, why: Ended) {
        let within = if why == Ended::Stopped { TURN_STOPS_WITHIN } else { TURN_ENDS_WITHIN };
        let turn_by = Instant::now() + within;
        if let Some(leaving) = &mut self.leaving {
            if why != Ended::Hibernated {
                leaving.why = why;
            }
            leaving.turn_by = leaving.turn_by.min(turn_by);
            return;
        }
        self.leaving = Some(Leaving { why, turn_by, asked: None, allowed: false });
        if let Some(running) = &self.running {
            running.cancel.cancel();
        } else {
            self.ask_to_leave();
        }
        self.say_state();
    }

    /// A client came while an idle session was leaving: it stays.
    pub(super) fn stay(&mut self) {
        if self.leaving.as_ref().is_some_and(|leaving| leaving.why != Ended::Stopped) {
            self.leaving = None;
        }
    }

    /// The supervisor agreed.
    pub(super) fn let_go(&mut self) {
        if let Some(leaving) = &mut self.leaving {
            leaving.allowed = true;
        }
    }

    /// Why the session ends now. From here on nothing more reaches it.
    pub(super) fn ends(&mut self) -> Option<Ended> {
        self.may_exit()?;
        // A client may have been handed over meanwhile: whoever was taken is served.
        while let Ok(input) = self.inputs.try_recv() {
            self.input(input);
        }
        let ended = self.may_exit()?;
        self.inputs.close();
        Some(ended)
    }

    /// Why the worker may exit now.
    fn may_exit(&mut self) -> Option<Ended> {
        if self.leaving.is_some() && self.running.is_none() {
            self.ask_to_leave();
        }
        let up = self.link.is_up();
        let now = Instant::now();
        self.leaving
            .as_ref()
            .filter(|leaving| {
                let patience_over = leaving.asked.is_some_and(|asked| asked + SUPERVISOR_ANSWERS_WITHIN <= now);
                self.running.is_none() && (leaving.allowed || !up || patience_over || leaving.why == Ended::Stopped)
            })
            .map(|leaving| leaving.why)
    }

    fn ask_to_leave(&mut self) {
        let Some(leaving) = self.leaving.as_mut().filter(|leaving| leaving.asked.is_none()) else { return };
        leaving.asked = Some(Instant::now());
        let state = if leaving.why == Ended::Closed { SessionState::Closed } else { SessionState::Hibernated };
        self.link.say(ToSupervisor::Leaving { state });
    }

    /// Ends a turn that did not end in time; its processes die with its task.
    pub(super) fn end_overdue_turn(&mut self) {
        let overdue = self.leaving.as_ref().is_some_and(|leaving| leaving.turn_by <= Instant::now());
        if overdue && self.running.is_some() {
            self.end_turn(TurnBody::Cancelled {});
        }
    }

    /// A turn that was cancelled because the supervisor stops was not cancelled by anybody.
    pub(super) fn as_it_ended(&self, body: TurnBody) -> TurnBody {
        match (&body, &self.leaving) {
            (TurnBody::Cancelled {}, Some(Leaving { why: Ended::Stopped, .. })) => stopped(),
            _ => body,
        }
    }

    /// Says goodbye to everybody and makes the end durable.
    pub(super) async fn farewell(mut self, ended: Ended) -> Ended {
        self.runs.end_all(Duration::ZERO).await;
        self.write_owed();
        if !self.state.queue.is_empty() && !self.state.paused {
            // They wait for somebody who comes back; unpaused they would have the session started again.
            self.pause(true);
        }
        if ended == Ended::Closed {
            if let Some(agents) = &self.agents {
                agents.conversations().close();
            }
            // Otherwise whoever attaches again would find handles without their marks.
            self.conversations_changed();
            self.meta.closed = true;
            self.meta.closed_unix_ms = Some(clock::unix_ms());
        }
        if ended == Ended::Closed || self.meta.last_prompt != self.state.last_prompt {
            self.save_meta();
        }
        if ended == Ended::Hibernated {
            self.compact_for_sleep();
        }
        self.unwant();
        for (_, client) in self.clients.iter() {
            if ended == Ended::Closed && (client.features.attach || client.closing.is_some()) {
                client.reply(&ServerEvent::Reply(Reply::SessionClosed {
                    request_id: client.closing.clone(),
                    session_id: self.id,
                }));
            }
            client.out().close();
        }
        let room = self.clients.room.clone();
        let read = async {
            while self.clients.iter().any(|(_, client)| !client.out().is_done()) {
                room.notified().await;
            }
        };
        // Nobody is waited for longer: a client that does not read has to attach again.
        let _ = tokio::time::timeout(FAREWELL, read).await;
        ended
    }

    /// A client sends nothing more. One that still reads gets the end of the running turn.
    pub(super) fn half_closed(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.reading = false;
        if client.out().is_hung_up() || self.running.is_none() {
            self.gone(id);
        }
    }

    /// Clients that only waited for the end of the turn are done.
    pub(super) fn let_half_closed_go(&mut self) {
        if self.running.is_none() {
            for (_, client) in self.clients.iter().filter(|(_, client)| !client.reading) {
                client.out().close();
            }
        }
    }

    /// Half-closed clients whose other side is gone by now.
    pub(super) fn drop_hung_up(&mut self) {
        let gone: Vec<ClientId> = self
            .clients
            .iter()
            .filter(|(_, client)| !client.reading && client.out().is_hung_up())
            .map(|(id, _)| id)
            .collect();
        for id in gone {
            self.gone(id);
        }
    }

    /// A client is gone; the last one may take the session with it.
    pub(super) fn gone(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(id) else { return };
        client.out().close();
        self.idle_since = Instant::now();
        if self.clients.len() == 0 && self.meta.on_disconnect == OnDisconnect::Close {
            self.leave(Ended::Closed);
        }
        self.say_state();
    }
}

/// The end of a turn that the supervisor's end cut short.
fn stopped() -> TurnBody {
    TurnBody::Failed {
        code: ErrorCode::Unavailable,
        message: "interrupted: stopped (scv stop); what was done is kept, send the prompt again to go on".to_owned(),
        origin: None,
    }
}

/// The end of a turn whose worker is gone: what the supervisor says that had to end it (one word in
/// `sessions/<id>/ended`), else that it died.
pub(super) fn of_a_dead_worker(ended: Option<&[u8]>) -> TurnBody {
    match ended {
        Some(b"stopped") => stopped(),
        Some(b"closed") => TurnBody::Cancelled {},
        _ => TurnBody::Failed {
            code: ErrorCode::SessionCrashed,
            message: "interrupted: the process that ran this turn died; what was done is kept and nothing was run \
                      again, send the prompt again to go on"
                .to_owned(),
            origin: None,
        },
    }
}
