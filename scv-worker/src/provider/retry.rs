//! Whether and when a failed request is sent again. Pure: no clock, no randomness of its own.

use std::time::{Duration, SystemTime};

/// A provider that wants a longer wait gets none: the person decides.
pub(super) const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// The wait before the first retry; it doubles with each one.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// What a failure says about sending the request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outlook {
    /// The same request would fail again.
    Lasting,
    /// It may pass; the provider may have said when.
    Passing(Option<Duration>),
}

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Send the request again after this time.
    Again(Duration),
    /// Report it.
    GiveUp,
}

/// The plan after `retries` retries; `jitter` in `0.0..=1.0` spreads clients that failed together.
pub(super) fn plan(outlook: Outlook, retries: u32, max_retries: u32, jitter: f64) -> Plan {
    let Outlook::Passing(hint) = outlook else { return Plan::GiveUp };
    if retries >= max_retries {
        return Plan::GiveUp;
    }
    let wait = match hint {
        Some(hint) if hint > LONGEST_WAIT => return Plan::GiveUp,
        // Never earlier than asked for.
        Some(hint) => hint + hint.mul_f64(0.1 * jitter),
        None => (FIRST_WAIT * 2_u32.saturating_pow(retries.min(16))).mul_f64(0.5 + 0.5 * jitter),
    };
    Plan::Again(wait.min(LONGEST_WAIT))
}

/// Whether an HTTP status is worth a retry. 501 and 505 say "never".
pub(super) fn passing_status(status: u16) -> bool {
    matches!(status, 408 | 409 | 425 | 429) || (status >= 500 && !matches!(status, 501 | 505))
}

/// What a provider's own code says, where it says more than the status.
///
/// Codes of the Responses API's `error` objects; `insufficient_quota` comes with a 429.
pub(super) fn passing_code(code: &str) -> Option<bool> {
    match code {
        "insufficient_quota"
        | "billing_hard_limit_reached"
        | "billing_not_active"
        | "quota_exceeded"
        | "usage_limit_reached"
        | "usage_not_included" => Some(false),
        "rate_limit_exceeded"
        | "server_error"
        | "server_is_overloaded"
        | "overloaded_error"
        | "slow_down"
        | "internal_server_error"
        | "service_unavailable" => Some(true),
        _ => None,
    }
}

/// The wait that the headers `retry-after-ms` or `retry-after` ask for (RFC 9110, 10.2.3).
pub(super) fn header_wait(milliseconds: Option<&str>, value: Option<&str>, now: SystemTime) -> Option<Duration> {
    if let Some(wait) = milliseconds.and_then(|text| seconds(text, 0.001)) {
        return Some(wait);
    }
    let value = value?.trim();
    seconds(value, 1.0).or_else(|| {
        let date = httpdate::parse_http_date(value).ok()?;
        Some(date.duration_since(now).unwrap_or_default())
    })
}

/// The wait that an error's text asks for, such as `Please try again in 1.5s` or `in 1m30s`.
pub(super) fn worded_wait(text: &str) -> Option<Duration> {
    let lower = text.to_ascii_lowercase();
    let at = ["try again in ", "retry in ", "retry after "]
        .iter()
        .find_map(|words| Some(lower.find(words)? + words.len()))?;
    let mut rest = lower[at..].trim_start();
    let mut total = None;
    while let Some((part, tail)) = one_span(rest) {
        total = Some(total.unwrap_or(Duration::ZERO).saturating_add(part));
        rest = tail;
    }
    total
}

/// One number with its unit at the start of `text`, and what follows.
fn one_span(text: &str) -> Option<(Duration, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at(end);
    let rest = rest.trim_start();
    let unit_end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let factor = match &rest[..unit_end] {
        "ms" | "millisecond" | "milliseconds" => 0.001,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hour" | "hours" => 3600.0,
        _ => return None,
    };
    Some((seconds(number, factor)?, &rest[unit_end..]))
}

fn seconds(text: &str, factor: f64) -> Option<Duration> {
    let text = text.trim().trim_end_matches('.');
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Duration::try_from_secs_f64(text.parse::<f64>().ok()? * factor).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn only_what_may_pass_is_sent_again() {
        let passing: Vec<u16> = (400..=530).filter(|&status| passing_status(status)).collect();
        assert_eq!(passing[..4], [408, 409, 425, 429]);
        assert!(passing.contains(&500) && passing.contains(&503) && passing.contains(&529));
        assert!(![400, 401, 403, 404, 422, 501, 505].iter().any(|&status| passing_status(status)));
        assert_eq!(passing_code("insufficient_quota"), Some(false));
        assert_eq!(passing_code("rate_limit_exceeded"), Some(true));
        assert_eq!(passing_code("invalid_prompt"), None);
    }

    #[test]
    fn waits_double_within_their_jitter_until_the_retries_are_used_up() {
        let passing = Outlook::Passing(None);
        assert_eq!(plan(passing, 0, 3, 0.0), Plan::Again(ms(250)));
        assert_eq!(plan(passing, 0, 3, 1.0), Plan::Again(ms(500)));
        assert_eq!(plan(passing, 2, 3, 1.0), Plan::Again(ms(2000)));
        assert_eq!(plan(passing, 3, 3, 1.0), Plan::GiveUp);
        assert_eq!(plan(passing, 40, 99, 1.0), Plan::Again(LONGEST_WAIT));
        assert_eq!(plan(Outlook::Lasting, 0, 3, 0.5), Plan::GiveUp);
    }

    #[test]
    fn a_wait_asked_for_is_never_shortened_and_a_long_one_is_refused() {
        assert_eq!(plan(Outlook::Passing(Some(ms(1500))), 0, 1, 0.0), Plan::Again(ms(1500)));
        assert_eq!(plan(Outlook::Passing(Some(ms(1000))), 0, 1, 1.0), Plan::Again(ms(1100)));
        assert_eq!(plan(Outlook::Passing(Some(LONGEST_WAIT)), 0, 1, 1.0), Plan::Again(LONGEST_WAIT));
        assert_eq!(plan(Outlook::Passing(Some(ms(60_001))), 0, 1, 0.0), Plan::GiveUp);
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_as_a_date() {
        let cases = [
            (None, Some("7"), Some(ms(7000))),
            (None, Some(" 1.5 "), Some(ms(1500))),
            (Some("250"), Some("7"), Some(ms(250))),
            (None, Some("Thu, 01 Jan 1970 00:00:30 GMT"), Some(ms(30_000))),
            (None, Some("-3"), None),
            (None, Some("inf"), None),
            (None, Some("soon"), None),
            (None, None, None),
        ];
        for (milliseconds, value, expected) in cases {
            assert_eq!(header_wait(milliseconds, value, NOW), expected, "{milliseconds:?} {value:?}");
        }
        let past = header_wait(None, Some("Thu, 01 Jan 1970 00:00:30 GMT"), NOW + ms(90_000));
        assert_eq!(past, Some(Duration::ZERO));
    }

    #[test]
    fn a_wait_is_found_in_the_words() {
        let cases = [
            ("Rate limit reached. Please try again in 1.5s. Visit", Some(ms(1500))),
            ("try again in 20ms.", Some(ms(20))),
            ("Please try again in 1m30s.", Some(ms(90_000))),
            ("Please retry after 3 seconds", Some(ms(3000))),
            ("try again in a while", None),
            ("try again in 5", None),
            ("try again in 99999999999999999999999999h", None),
            ("no hint", None),
        ];
        for (text, expected) in cases {
            assert_eq!(worded_wait(text), expected, "{text}");
        }
    }
}
