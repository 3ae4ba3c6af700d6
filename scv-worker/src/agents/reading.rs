//! What an agent's error reads like. Only errors are read, never a reply, so nothing that a model
//! writes decides where a task goes.

/// Nobody is signed in; in lower case, sorted.
const SIGNED_OUT: &[&str] = &[
    "401 unauthorized",
    "authentication required",
    "incorrect api key",
    "invalid api key",
    "login required",
    "missing_credential",
    "no api key",
    "not authenticated",
    "not logged in",
    "not signed in",
    "please log in",
    "please run /login",
    "unauthenticated",
];

/// Another agent could do better; in lower case, sorted.
const UNAVAILABLE: &[&str] = &[
    "connection refused",
    "does not exist or you do not have access",
    "high demand",
    "insufficient_quota",
    "model does not exist",
    "model is not supported",
    "model not found",
    "model_not_found",
    "overloaded",
    "quota",
    "rate limit",
    "rate_limit",
    "unknown model",
    "usage limit",
];

/// Statuses of a provider that another provider may not have (tools.md, "Choosing an agent").
fn is_status(number: u32) -> bool {
    matches!(number, 401 | 403 | 404 | 429 | 500..=599)
}

/// Words before a number that make it a status.
const BEFORE_STATUS: &[&str] = &["api", "code", "error", "http", "http/1.1", "http/2", "rejected", "status"];

/// Words after a number that make it a status.
const AFTER_STATUS: &[&str] =
    &["bad", "forbidden", "gateway", "internal", "not", "overloaded", "service", "too", "unauthorized"];

/// Whether `error` reads like a missing sign-in; `more` are the agent's own words for it.
pub(crate) fn signed_out(error: &str, more: &[&str]) -> bool {
    let error = error.to_lowercase();
    SIGNED_OUT.iter().chain(more).any(|words| error.contains(words))
}

/// Whether `error` reads like something that another agent could avoid: the provider's 401, 403,
/// 404, 429 or 5xx, a quota, an unknown model.
pub(crate) fn avoidable(error: &str) -> bool {
    let error = error.to_lowercase();
    UNAVAILABLE.iter().any(|words| error.contains(words)) || has_status(&error)
}

fn has_status(error: &str) -> bool {
    let words: Vec<&str> = error
        .split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | ',' | ':' | '"' | '[' | ']'))
        .filter(|word| !word.is_empty())
        .collect();
    words.iter().enumerate().any(|(at, word)| {
        let near = |index: Option<usize>, table: &[&str]| {
            index.and_then(|index| words.get(index)).is_some_and(|word| table.contains(word))
        };
        let word = word.trim_end_matches('.');
        word.len() == 3
            && word.parse().is_ok_and(is_status)
            && (near(at.checked_sub(1), BEFORE_STATUS) || near(at.checked_add(1), AFTER_STATUS))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_another_agent_could_avoid() {
        for error in [
            "unexpected status 401 Unauthorized: Incorrect API key provided",
            "exceeded retry limit, last status: 429 Too Many Requests, request id: req_1",
            "The model does not exist",
            "We’re currently experiencing high demand, which may cause temporary errors.",
            "API Error: 529 Overloaded",
            "HTTP 503",
            "provider said 502 (Bad Gateway): 502 Bad Gateway",
            "You exceeded your current quota",
        ] {
            assert!(avoidable(error), "{error}");
        }
    }

    #[test]
    fn other_failures_are_the_agents_own() {
        for error in [
            "error: test failed: 3 of 404 tests",
            "took 500 ms",
            "line 403: expected ;",
            "stream disconnected before completion: the fake failed",
            "Incomplete response returned, reason: max_output_tokens",
            "",
        ] {
            assert!(!avoidable(error), "{error}");
        }
    }

    #[test]
    fn a_missing_sign_in_is_read_from_the_error() {
        assert!(signed_out("Not logged in · Please run /login", &[]));
        assert!(signed_out("unexpected status 401 Unauthorized", &[]));
        assert!(!signed_out("Missing environment variable: `A`.", &[]));
        assert!(signed_out("Missing environment variable: `A`.", &["missing environment variable"]));
        assert!(!signed_out("tests failed", &["missing environment variable"]));
    }

    #[test]
    fn the_tables_are_sorted() {
        for table in [SIGNED_OUT, UNAVAILABLE, BEFORE_STATUS, AFTER_STATUS] {
            assert!(table.is_sorted());
        }
    }
}
