//! The ways in which a request fails, and the sentence for each: what happened and what to do.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use shared::protocol::ErrorCode;

use super::redact::words;
use super::retry::{self, Outlook};
use super::watchdog::Expired;
use super::{ProviderError, Settings, http};

/// Why an attempt gave no response.
#[derive(Debug)]
pub(super) enum Failure {
    /// The profile cannot be used; the text names the key.
    Settings(String),
    /// The endpoint was not reached or the connection was lost.
    Lost(Lost),
    /// The endpoint answered with another status than 200.
    Status { status: u16, report: Report, wait: Option<Duration> },
    /// The endpoint answered with something that is no event stream.
    NoStream { content_type: String, report: Report },
    /// An event could not be read; the text says which.
    Garbage(String),
    /// The stream ended before its last event.
    Cut,
    /// The provider reported a failure inside the stream.
    Reported(Report),
    /// A clock ran out.
    Expired(Expired),
    /// The response is larger than allowed.
    TooMuch(ErrorCode, String),
}

/// How a connection was lost.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// Nothing listens there.
    Refused,
    /// The host's name has no address.
    Name,
    /// TLS failed, with its cause.
    Tls(String),
    /// No connection in time.
    Slow,
    /// Anything else, with its cause.
    Other(String),
}

/// What a provider says about a failure: its `error` object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// `error.code`, or `error.type` where there is none.
    pub code: String,
    /// `error.message`, as it came; only for [`words`].
    pub message: String,
}

impl Lost {
    /// Looks through the causes of `error`, whose own text may name the URL.
    pub(super) fn of(error: &reqwest::Error) -> Self {
        let mut last = String::new();
        for cause in std::iter::successors(error.source(), |cause| next_cause(*cause)) {
            if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
                return Self::Tls(tls.to_string());
            }
            match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(io::ErrorKind::ConnectionRefused) => return Self::Refused,
                Some(io::ErrorKind::TimedOut) => return Self::Slow,
                _ => {}
            }
            last = cause.to_string();
            // hyper-util's connector has no type for it.
            if last.contains("dns error") {
                return Self::Name;
            }
        }
        if error.is_timeout() { Self::Slow } else { Self::Other(last) }
    }
}

/// The cause below `cause`; `io::Error` hides the error that it wraps from its `source`.
fn next_cause<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => cause.source(),
    }
}

impl Failure {
    /// Whether sending the same request again may help.
    pub(super) fn outlook(&self) -> Outlook {
        let passing = |report: &Report, by_default: bool, wait: Option<Duration>| {
            if retry::passing_code(&report.code).unwrap_or(by_default) {
                Outlook::Passing(wait.or_else(|| retry::worded_wait(&report.message)))
            } else {
                Outlook::Lasting
            }
        };
        match self {
            Self::Status { status, report, wait } => passing(report, retry::passing_status(*status), *wait),
            Self::Reported(report) => passing(report, false, None),
            Self::Lost(Lost::Tls(_)) => Outlook::Lasting,
            Self::Lost(_) | Self::Cut => Outlook::Passing(None),
            Self::Settings(_) | Self::NoStream { .. } | Self::Garbage(_) | Self::Expired(_) | Self::TooMuch(..) => {
                Outlook::Lasting
            }
        }
    }

    /// Whether the endpoint refused `include: ["reasoning.encrypted_content"]`, as it does for
    /// models that do not reason.
    pub(super) fn is_include_refused(&self) -> bool {
        let Self::Status { status: 400 | 422, report, .. } = self else { return false };
        let message = report.message.to_ascii_lowercase();
        // An item that cannot be decrypted is another refusal.
        report.code != "invalid_encrypted_content"
            && (message.contains("encrypted content is not supported")
                || message.contains("reasoning.encrypted_content")
                || message.contains("'include'"))
    }

    /// What happened, for a notice of a retry.
    pub(super) fn what(&self, about: &About<'_>) -> String {
        let Settings { base_url, timeout, event_idle, .. } = about.settings;
        let place = http::shown(base_url);
        match self {
            Self::Settings(fault) => fault.clone(),
            Self::Lost(Lost::Refused) => format!("nothing listens at {place} (connection refused)"),
            Self::Lost(Lost::Name) => format!("the host of {place} has no address (DNS)"),
            Self::Lost(Lost::Tls(cause)) => format!("no TLS connection to {place}: {}", about.words(cause)),
            Self::Lost(Lost::Slow) => format!("no connection to {place} in time"),
            Self::Lost(Lost::Other(cause)) => format!("the connection to {place} was lost: {}", about.words(cause)),
            Self::Status { status, report, .. } => about.said(&status_text(*status, report), report),
            Self::NoStream { content_type, report } => about.said(
                &format!("{place} answered with {} instead of an event stream", about.words(content_type)),
                report,
            ),
            Self::Garbage(which) => format!("the provider sent garbage: {which}"),
            Self::Cut => "stream ended before response.completed".to_owned(),
            Self::Reported(report) => about.said("the provider reported a failure", report),
            Self::Expired(Expired::Idle) => {
                format!("no event from the provider for {} s (`event_idle_seconds`)", event_idle.as_secs_f64())
            }
            Self::Expired(Expired::Total) => {
                format!("no whole response within {} s (`timeout_seconds`)", timeout.as_secs_f64())
            }
            Self::TooMuch(_, what) => what.clone(),
        }
    }

    /// The error for the turn, after `retries` retries.
    pub(super) fn into_error(self, about: &About<'_>, retries: u32) -> ProviderError {
        let mut message = self.what(about);
        if retries > 0 {
            let _ = write!(message, " (after {retries} {})", if retries == 1 { "retry" } else { "retries" });
        }
        let hint = self.hint(about);
        if !hint.is_empty() {
            message.push_str(": ");
            message.push_str(&hint);
        }
        ProviderError { code: self.code(), message }
    }

    fn code(&self) -> ErrorCode {
        match self {
            Self::TooMuch(code, _) => *code,
            Self::Status { status: 413, .. } => ErrorCode::ContextLimit,
            Self::Status { report, .. } | Self::Reported(report) if report.is_context() => ErrorCode::ContextLimit,
            _ => ErrorCode::ProviderError,
        }
    }

    /// What a person can do about it.
    fn hint(&self, about: &About<'_>) -> String {
        let profile = format!("[providers.{}]", about.settings.profile);
        match self {
            Self::Settings(_) => format!("check {profile}"),
            Self::Status { report, .. } | Self::Reported(report) if report.is_context() => {
                "start a new session or clear this one".to_owned()
            }
            Self::Status { report, .. } | Self::Reported(report)
                if retry::passing_code(&report.code) == Some(false) =>
            {
                format!("check plan and billing of the account of {profile}")
            }
            Self::Status { status: 401, .. } if about.settings.api_key.is_none() => {
                format!("set `api_key` or `api_key_env` of {profile}")
            }
            Self::Status { status: 401, .. } => format!("check `api_key` or `api_key_env` of {profile}"),
            Self::Status { status: 403, .. } => format!("check what the key of {profile} may use"),
            Self::Status { status: 404, .. } => {
                format!(
                    "check `model` (\"{}\") and `base_url` ({}) of {profile}",
                    about.model,
                    http::shown(&about.settings.base_url)
                )
            }
            Self::Status { status: 300..=399, .. } => format!("set `base_url` of {profile} to where it leads"),
            Self::Status { status: 429, wait, .. } => match wait {
                Some(wait) if *wait > retry::LONGEST_WAIT => format!("it asks to wait {} s", wait.as_secs()),
                _ => "try again later".to_owned(),
            },
            Self::Status { status: 500.., .. } => "try again later".to_owned(),
            Self::Lost(Lost::Refused | Lost::Name) | Self::NoStream { .. } => format!("check `base_url` of {profile}"),
            _ => String::new(),
        }
    }
}

fn status_text(status: u16, report: &Report) -> String {
    let what = match status {
        _ if report.is_context() => "the conversation does not fit the model",
        _ if retry::passing_code(&report.code) == Some(false) => "the account has no quota left",
        401 => "the provider refused the key",
        403 => "the provider denied access",
        404 => "the endpoint or the model was not found",
        413 => "the request is too large for the provider",
        429 => "the provider limits requests",
        300..=399 => "the endpoint redirects, which is not followed",
        500.. => "the provider failed",
        _ => "the provider refused the request",
    };
    format!("{what} ({status})")
}

impl Report {
    fn is_context(&self) -> bool {
        matches!(self.code.as_str(), "context_length_exceeded" | "string_above_max_length")
    }
}

/// What a sentence needs to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    /// The profile.
    pub settings: &'a Settings,
    /// The model that was asked for.
    pub model: &'a str,
}

impl About<'_> {
    /// The provider's own words, fit to be shown.
    fn words(&self, text: &str) -> String {
        words(text, &self.settings.mask())
    }

    fn said(&self, what: &str, report: &Report) -> String {
        let said = self.words(if report.message.is_empty() { &report.code } else { &report.message });
        let said = said.trim_end_matches('.');
        if said.is_empty() { what.to_owned() } else { format!("{what}: \"{said}\"") }
    }
}
