//! Somebody who looks on at other people's sessions: attaches anywhere in the past, reads fast,
//! slowly or not at all, answers an approval now and then, and goes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::connection::Connection;
use super::{Shared, Stage};
use crate::truth::{Follow, Heard};

pub(super) fn live(number: usize, stage: &Stage, mut random: fastrand::Rng, shared: &Arc<Shared>) {
    while !shared.is_over() {
        std::thread::sleep(Duration::from_millis(random.u64(20..400)));
        if shared.rests() {
            continue;
        }
        let sessions: Vec<String> = stage.truth.state().sessions.iter().cloned().collect();
        let Some(session) = random.choice(sessions) else { continue };
        shared.busy(1);
        // It may be gone, or not there yet; those are its owner's to notice.
        let why = watch(number, stage, &mut random, &session).err().unwrap_or_default();
        stage.truth.log(&format!("watcher-{number}"), &json!({"watched": session, "over": why}));
        shared.busy(0);
    }
}

fn watch(number: usize, stage: &Stage, random: &mut fastrand::Rng, session: &str) -> Result<(), String> {
    let name = format!("watcher-{number}");
    let mut connection = Connection::open(&*stage.world, &name, &["attach", "approvals"])?;
    let after = if random.bool() { 0 } else { random.u64(..60) };
    connection.send(json!({"type": "session.attach", "session_id": session, "after_seq": after}));
    let until = Instant::now() + Duration::from_millis(random.u64(50..2500));
    let slow = random.u8(..4) == 0;
    let mut follow = Follow::after(after);
    connection.patience(Duration::from_millis(100));
    while Instant::now() < until {
        if slow {
            std::thread::sleep(Duration::from_millis(random.u64(..40)));
        }
        let Some(event) = connection.next()? else { continue };
        match event["type"].as_str() {
            Some("error") => return Err(event.to_string()),
            // It has not said so much yet.
            Some("session.attached") if event["to_seq"].as_u64() < Some(after) => return Ok(()),
            Some("approval.requested") if random.u8(..3) == 0 => {
                connection.send(json!({"type": "approval.resolve", "session_id": session,
                    "approval_id": event["approval_id"], "approved": true}));
            }
            _ => {}
        }
        match follow.hear(&event, false) {
            // A session that was removed has begun again, or asks for more than was said.
            Heard::Wrong(why) if stage.truth.state().sessions.contains(session) => {
                stage.truth.violation(format!("{name}, session {session}: {why}"));
            }
            Heard::New if stage.truth.state().sessions.contains(session) => {
                stage.truth.told(session, follow.last, &event);
            }
            _ => {}
        }
    }
    stage.truth.count("sessions watched");
    Ok(())
}
