//! Wall-clock time as the wire and the disk have it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; 0 for a clock before that.
pub fn unix_ms() -> u64 {
    to_unix_ms(SystemTime::now())
}

/// Milliseconds since 1970 of `time`.
pub fn to_unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
