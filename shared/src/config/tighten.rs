//! What a project's own configuration may change: only what makes a session stricter.
//!
//! The project is untrusted (somebody else's repository), so an attempt to weaken is an error.

use toml::Value;

use super::error::{ConfigError, Problem};
use super::key::Tighten;
use super::read::Leaf;
use super::tools::ApprovalPolicy;

/// The value that holds when a project sets `wanted` over `now`, or an error that says what it may do.
pub(super) fn tighten(path: &str, now: Option<&Value>, wanted: Leaf) -> Result<Leaf, ConfigError> {
    // What has no value yet would be something new: a profile, an account.
    let result = now.map_or_else(|| Err(NOT_YOURS.to_owned()), |now| merged(wanted.key.project, now, &wanted.value));
    match result {
        Ok(value) => Ok(Leaf { value, ..wanted }),
        Err(allowed) => {
            Err(ConfigError { place: wanted.place, key: Some(path.into()), problem: Problem::Project { allowed } })
        }
    }
}

/// What a project hears of a key that it may not touch.
const NOT_YOURS: &str = "it belongs to the user's own configuration";

fn merged(rule: Tighten, now: &Value, wanted: &Value) -> Result<Value, String> {
    let now_number = now.as_integer().unwrap_or(i64::MAX);
    let wanted_number = wanted.as_integer().unwrap_or(i64::MAX);
    let (stricter, allowed) = match rule {
        Tighten::Never => (false, NOT_YOURS.to_owned()),
        Tighten::Lower => (wanted_number <= now_number, format!("it may only lower it, to at most {now_number}")),
        Tighten::Budget if now_number == 0 => (true, String::new()),
        Tighten::Budget => (
            wanted_number != 0 && wanted_number <= now_number,
            format!("it may only lower it, to at least 1 and at most {now_number}"),
        ),
        Tighten::Off => {
            (wanted.as_bool() == Some(false) || now.as_bool() == Some(true), "it may only set it to false".to_owned())
        }
        Tighten::OffWord => {
            (wanted.as_str() == Some("off") || now == wanted, "it may only set it to \"off\"".to_owned())
        }
        Tighten::Policy => {
            (policy(wanted).is_as_strict_as(policy(now)), { "it may only name a stricter policy".to_owned() })
        }
        Tighten::Append => {
            let parts = [now, wanted].map(|value| value.as_str().unwrap_or_default());
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            return Ok(parts.join("\n\n").into());
        }
        Tighten::Subset => {
            let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
            let now = list(now);
            (list(wanted).iter().all(|entry| now.contains(entry)), "it may only leave entries out".to_owned())
        }
    };
    if stricter { Ok(wanted.clone()) } else { Err(allowed) }
}

fn policy(value: &Value) -> ApprovalPolicy {
    value.clone().try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_may_only_tighten() {
        let int = |n: i64| Value::Integer(n);
        let list = |items: &[&str]| Value::Array(items.iter().map(|i| Value::from(*i)).collect());
        let cases = [
            (Tighten::Never, int(5), int(5), false),
            (Tighten::Lower, int(5), int(4), true),
            (Tighten::Lower, int(5), int(6), false),
            (Tighten::Budget, int(0), int(7), true),
            (Tighten::Budget, int(5), int(0), false),
            (Tighten::Budget, int(5), int(6), false),
            (Tighten::Off, true.into(), false.into(), true),
            (Tighten::Off, true.into(), true.into(), true),
            (Tighten::Off, false.into(), true.into(), false),
            (Tighten::OffWord, "brave".into(), "off".into(), true),
            (Tighten::OffWord, "off".into(), "brave".into(), false),
            (Tighten::Policy, "on-risk".into(), "always".into(), true),
            (Tighten::Policy, "on-risk".into(), "never".into(), true),
            (Tighten::Policy, "always".into(), "on-risk".into(), false),
            (Tighten::Policy, "never".into(), "always".into(), false),
            (Tighten::Subset, list(&["a", "b"]), list(&["b"]), true),
            (Tighten::Subset, list(&["a"]), list(&["c"]), false),
        ];
        for (rule, now, wanted, allowed) in cases {
            assert_eq!(merged(rule, &now, &wanted).is_ok(), allowed, "{rule:?}: {now} -> {wanted}");
        }
    }

    #[test]
    fn instructions_are_appended() {
        let text = |t: &str| Value::from(t);
        assert_eq!(merged(Tighten::Append, &text("a"), &text("b")), Ok(text("a\n\nb")));
        assert_eq!(merged(Tighten::Append, &text(""), &text("b")), Ok(text("b")));
    }
}
