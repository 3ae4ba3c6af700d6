//! A disk that fills up, and has room again.

use std::time::{Duration, Instant};

use super::Faults;
use crate::actors::Stage;

impl Faults {
    pub(super) fn fill(&mut self, stage: &Stage) -> Option<String> {
        if self.full_until.is_some() || !stage.world.fill_disk(true) {
            return None;
        }
        stage.truth.state().disk_was_full = true;
        let time = Duration::from_millis(self.random.u64(50..1500));
        self.full_until = Some(Instant::now() + time);
        Some(format!("for {time:?}"))
    }

    pub(super) fn free(&mut self, stage: &Stage, now: bool) {
        if self.full_until.take_if(|until| now || *until <= Instant::now()).is_some() && !stage.world.fill_disk(false) {
            stage.truth.violation("the driver cannot give the disk its space back");
        }
    }
}
