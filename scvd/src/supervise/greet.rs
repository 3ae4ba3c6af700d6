//! Connects to a worker, says hello and listens. The same for one that was just started and for
//! one that an earlier supervisor started.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use shared::link::{self, LinkReader, LinkWriter, MAX_STATE_BYTES, SocketAddress, ToSupervisor, ToWorker};
use shared::process::Identity;
use shared::protocol::{ErrorCode, SessionId};
use tokio::net::UnixStream;
use tracing::{info, warn};

use super::act::apply;
use super::link::{Answer, Link};
use super::renew;
use super::state::Event;
use super::table::WorkerId;
use crate::daemon::Daemon;
use crate::error::with_causes;

/// A worker that has not said hello by then is deaf.
const HELLO_WITHIN: Duration = Duration::from_secs(2);

/// A worker's hello, accepted.
#[derive(Debug, PartialEq, Eq)]
struct Hello {
    release: String,
    link_version: u32,
    session: Option<SessionId>,
}

/// Greets worker `id` and listens to it until its link ends.
pub(super) async fn converse(daemon: Rc<Daemon>, id: WorkerId) {
    let Some(identity) = daemon.workers.table.borrow().get(&id).map(|worker| worker.identity.clone()) else { return };
    let greeted = tokio::time::timeout(HELLO_WITHIN, greet(&daemon, &id, &identity)).await;
    let (mut reader, writer, hello) = match greeted {
        Ok(Ok(greeted)) => greeted,
        Ok(Err(cause)) => {
            // Not a broken link: it lives, and speaks what we do not.
            let is_of_another_time = cause.kind() == io::ErrorKind::Unsupported;
            let complaint = format!("cannot talk to scv-worker {id}: {cause}");
            if is_of_another_time && let Some(reasons) = &mut *daemon.reasons_to_stay_out.borrow_mut() {
                reasons.push(complaint.clone());
            }
            return give_up(&daemon, &id, complaint);
        }
        Err(_) => return give_up(&daemon, &id, format!("scv-worker {id} did not say hello within 2 seconds")),
    };
    if let Some(scopes) = &daemon.scopes {
        let memory_max = daemon.settings.borrow().worker_memory_max;
        if let Err(cause) = scopes.place(&id, identity.pid, memory_max).await {
            let cause = with_causes(&cause);
            return give_up(&daemon, &id, format!("scv-worker {id} has no scope of its own: {cause}"));
        }
    }
    let mut number = 0;
    if let Some(worker) = daemon.workers.table.borrow_mut().get_mut(&id) {
        worker.links += 1;
        number = worker.links;
        worker.release = hello.release;
        worker.link_version = hello.link_version;
        // What an earlier link had begun to give away went with it.
        worker.moving.clear();
        worker.link = Some(Link::new(writer));
    }
    apply(&daemon, &id, &Event::Greeted { session: hello.session });
    if let Some(session) = hello.session {
        daemon.hub.changed(session);
    }
    listen(&daemon, &id, &mut reader).await;
    // Whoever waits for an answer over this link is told so by its end.
    if let Some(worker) = daemon.workers.table.borrow_mut().get_mut(&id) {
        if worker.links != number {
            // There is a newer one.
            return;
        }
        worker.link = None;
    }
    apply(&daemon, &id, &Event::LinkLost);
}

fn give_up(daemon: &Rc<Daemon>, id: &str, complaint: String) {
    if let Some(worker) = daemon.workers.table.borrow_mut().get_mut(id) {
        // An exit that is about to be seen says more than a broken connection.
        warn!("{complaint}");
        worker.complaint = Some(complaint);
        if daemon.reasons_to_stay_out.borrow().is_some() {
            // The supervisor before us may stay in charge, and knows it better.
            worker.is_deaf = true;
            daemon.changed.notify_one();
            return;
        }
    }
    apply(daemon, id, &Event::Deaf);
}

async fn greet(daemon: &Daemon, id: &str, identity: &Identity) -> io::Result<(LinkReader, LinkWriter, Hello)> {
    let address = SocketAddress::of(&daemon.layout.worker(id).socket())?;
    let stream = UnixStream::connect(address.path()).await?;
    // A bundle is a file, and a file can be forged: only the kernel says who listens.
    if stream.peer_cred()?.pid() != Some(identity.pid) {
        return Err(io::Error::other("another process listens on its socket"));
    }
    let (mut reader, mut writer) = link::split(stream);
    let hello = ToWorker::Hello {
        link_version: link::VERSION,
        release: shared::RELEASE.to_owned(),
        pid: std::process::id().cast_signed(),
    };
    writer.send(&hello).await?;
    let answer = reader.next(|_| None).await?;
    let (answer, _) = answer.ok_or_else(|| io::Error::other("it closed the connection"))?;
    let hello = accept(answer, identity.pid)?;
    Ok((reader, writer, hello))
}

/// Whether we can work with a worker that says this.
fn accept(message: ToSupervisor, pid: i32) -> io::Result<Hello> {
    let ToSupervisor::Hello { link_version, release, pid: its_pid, session_id } = message else {
        return Err(io::Error::other("it did not say hello first"));
    };
    if its_pid != pid {
        return Err(io::Error::other(format!("it says that it is process {its_pid}, and is {pid}")));
    }
    if !(link::OLDEST_VERSION..=link::VERSION).contains(&link_version) {
        let (ours, oldest, newest) = (shared::RELEASE, link::OLDEST_VERSION, link::VERSION);
        let why =
            format!("it is of release {release} (link {link_version}), and scvd {ours} speaks {oldest} to {newest}");
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(Hello { release, link_version, session: session_id })
}

async fn listen(daemon: &Rc<Daemon>, id: &str, reader: &mut LinkReader) {
    loop {
        let (message, with) = match reader.next(ToSupervisor::raw).await {
            Ok(Some(read)) => read,
            Ok(None) => return,
            Err(cause) => {
                warn!(id, "what this worker sent is no message: {cause}");
                return;
            }
        };
        match with {
            Some(with) => renew::heard(daemon, id, message, with),
            None => heard(daemon, id, message),
        }
    }
}

fn heard(daemon: &Rc<Daemon>, id: &str, message: ToSupervisor) {
    match message {
        ToSupervisor::Taken { id: hand_over } => answered(daemon, id, hand_over, Answer::Taken),
        ToSupervisor::Refused { id: hand_over, reason, code } => {
            let code = code.unwrap_or(ErrorCode::SessionBusy);
            answered(daemon, id, hand_over, Answer::Refused { code, reason });
        }
        ToSupervisor::State { entry } => {
            let session = {
                let mut table = daemon.workers.table.borrow_mut();
                let Some(worker) = table.get_mut(id) else { return };
                // Bounded here and not trusted: it is kept, and copied to every watcher.
                if serde_json::to_vec(&entry).map_or(0, |json| json.len()) > MAX_STATE_BYTES {
                    warn!(id, "a state line over its limit was dropped");
                    return;
                }
                worker.entry = Some(*entry);
                worker.state.session()
            };
            if let Some(session) = session {
                daemon.hub.changed(session);
            }
        }
        ToSupervisor::Leaving { .. } => {
            info!(id, "wants to leave");
            apply(daemon, id, &Event::WantsToLeave);
        }
        // A second hello changes nothing, and a newer worker may say more than we know.
        ToSupervisor::Hello { .. }
        | ToSupervisor::Client { .. }
        | ToSupervisor::Unheard { .. }
        | ToSupervisor::Moved { .. }
        | ToSupervisor::Unknown => {}
    }
}

fn answered(daemon: &Rc<Daemon>, id: &str, hand_over: u64, answer: Answer) {
    let event = if answer == Answer::Taken { Event::Taken } else { Event::Refused };
    daemon.workers.last_taken.set(Some(Instant::now()));
    let table = daemon.workers.table.borrow();
    let waited = table.get(id).and_then(|w| w.link.as_ref()).is_some_and(|link| link.answered(hand_over, answer));
    drop(table);
    // An answer that comes too late was counted as none.
    if waited {
        apply(daemon, id, &event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(link_version: u32, pid: i32) -> ToSupervisor {
        ToSupervisor::Hello { link_version, release: "0.1.0".into(), pid, session_id: None }
    }

    #[test]
    fn a_hello_of_another_process_or_an_unknown_version_is_refused() {
        assert_eq!(
            accept(hello(1, 7), 7).unwrap(),
            (Hello { release: "0.1.0".into(), link_version: 1, session: None })
        );
        assert!(accept(hello(1, 8), 7).unwrap_err().to_string().contains("process 8"));
        assert!(accept(hello(link::VERSION + 1, 7), 7).unwrap_err().to_string().contains("release 0.1.0"));
        assert!(accept(ToSupervisor::Taken { id: 1 }, 7).is_err());
    }
}
