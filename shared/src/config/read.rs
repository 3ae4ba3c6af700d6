//! Reads one layer into single values, each checked against the table of keys.

use std::collections::BTreeMap;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::error::{ConfigError, Place, Problem};
use super::key::{Found, Key, Kind, find};
use super::{Config, agents, keys, supervisor};
use crate::fs;

/// A configuration file has no reason to be larger.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// One value of one layer. Debug shows no value: it may be a secret.
#[derive(Clone)]
pub(super) struct Leaf {
    /// What is known of the key.
    pub key: &'static Key,
    /// The value, which is allowed.
    pub value: Value,
    /// Where it stands.
    pub place: Place,
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.key.path, self.place)
    }
}

/// The values of a file, with their dotted keys; `None` if the file is not there.
pub(super) fn file(path: &Path) -> Result<Option<Vec<(String, Leaf)>>, ConfigError> {
    let at = |line| Place::File(path.to_owned(), line);
    let bytes = match fs::read_bounded(path, MAX_FILE_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(ConfigError { place: at(0), key: None, problem: Problem::Unreadable(error) }),
    };
    let text = std::str::from_utf8(&bytes).map_err(|error| ConfigError {
        place: at(line_of(&bytes, error.valid_up_to())),
        key: None,
        problem: Problem::Syntax("the text is not UTF-8".into()),
    })?;
    let table = DeTable::parse(text).map_err(|error| ConfigError {
        place: at(line_of(&bytes, error.span().map_or(0, |span| span.start))),
        key: None,
        // The parser's message names what it expected; the text itself would only come with `Display`.
        problem: Problem::Syntax(error.message().into()),
    })?;
    let mut walk = Walk { place: &|offset| at(line_of(&bytes, offset)), path: Vec::new(), leaves: Vec::new() };
    walk.table(table.get_ref())?;
    Ok(Some(walk.leaves))
}

/// The value of `path` as a variable or a flag gives it: TOML, or the bare text where a text is allowed.
pub(super) fn text(path: &str, text: &str, place: Place) -> Result<(String, Leaf), ConfigError> {
    let parts: Vec<&str> = path.split('.').collect();
    let key = lookup(&parts, || place.clone())?;
    let refuse = || wrong(key, path, place.clone());
    let document = format!("v = {text}");
    let parsed = DeTable::parse(&document).ok().filter(|table| table.get_ref().len() == 1);
    let parsed = parsed.and_then(|table| table.into_inner().into_iter().next()).map(|(_, value)| value.into_inner());
    let value = match (&key.kind, parsed) {
        (Kind::Text(_) | Kind::Choice(_) | Kind::Secret, parsed) => match parsed {
            Some(value @ DeValue::String(_)) => checked(key, &value),
            _ => checked(key, &DeValue::String(text.into())),
        },
        (_, Some(value)) => checked(key, &value),
        (_, None) => None,
    };
    Ok((path.to_owned(), Leaf { key, value: value.ok_or_else(refuse)?, place }))
}

/// The values of a whole configuration, with their dotted keys; secrets are not among them.
pub(super) fn flat(config: &Config) -> BTreeMap<String, Value> {
    fn add(path: String, value: Value, values: &mut BTreeMap<String, Value>) {
        match value {
            Value::Table(table) => {
                table.into_iter().for_each(|(name, value)| add(format!("{path}.{name}"), value, values));
            }
            value => {
                values.insert(path, value);
            }
        }
    }
    let mut values = BTreeMap::new();
    // Our own type with string keys: serialization cannot fail.
    for (section, value) in Table::try_from(config).unwrap_or_default() {
        add(section, value, &mut values);
    }
    values
}

struct Walk<'a> {
    place: &'a dyn Fn(usize) -> Place,
    path: Vec<String>,
    leaves: Vec<(String, Leaf)>,
}

impl Walk<'_> {
    fn table(&mut self, table: &DeTable<'_>) -> Result<(), ConfigError> {
        for (name, value) in table {
            self.path.push(name.get_ref().to_string());
            self.entry(name.span().start, value)?;
            self.path.pop();
        }
        Ok(())
    }

    fn entry(&mut self, at: usize, value: &Spanned<DeValue<'_>>) -> Result<(), ConfigError> {
        let parts: Vec<&str> = self.path.iter().map(String::as_str).collect();
        if let DeValue::Table(table) = value.get_ref()
            && matches!(find(keys(), &parts), Found::Table)
        {
            name_is_allowed(&parts, || (self.place)(at))?;
            return self.table(table);
        }
        let key = lookup(&parts, || (self.place)(at))?;
        let path = parts.join(".");
        let place = (self.place)(value.span().start);
        let value = checked(key, value.get_ref()).ok_or_else(|| wrong(key, &path, place.clone()))?;
        self.leaves.push((path, Leaf { key, value, place }));
        Ok(())
    }
}

fn wrong(key: &Key, path: &str, place: Place) -> ConfigError {
    ConfigError { place, key: Some(path.into()), problem: Problem::Value { allowed: key.kind.allowed() } }
}

fn lookup(parts: &[&str], place: impl Fn() -> Place) -> Result<&'static Key, ConfigError> {
    name_is_allowed(&parts[..parts.len() - 1], &place)?;
    let path = printable(parts);
    match find(keys(), parts) {
        Found::Key(key) => Ok(key),
        Found::Table => {
            Err(ConfigError { place: place(), key: path, problem: Problem::Value { allowed: "a table".into() } })
        }
        Found::Nothing => {
            let similar = path.as_deref().and_then(similar);
            Err(ConfigError { place: place(), key: path, problem: Problem::Unknown { similar } })
        }
    }
}

/// Names that people choose, and names of what SCV knows.
fn name_is_allowed(parts: &[&str], place: impl Fn() -> Place) -> Result<(), ConfigError> {
    let known = match parts {
        ["providers", name, ..] | ["channels", _, name, ..] if !(super::NAME.holds)(name) => {
            return Err(ConfigError {
                place: place(),
                key: Some(format!("the name below {}", parts[0])),
                problem: Problem::Value { allowed: super::NAME.allowed.into() },
            });
        }
        ["agents", name, ..] if !agents::NAMES.contains(name) => &agents::NAMES[..],
        ["channels", name, ..] if !supervisor::CHANNELS.contains(name) => &supervisor::CHANNELS[..],
        _ => return Ok(()),
    };
    let key = printable(parts);
    let similar = closest(parts[1], known.iter().copied()).map(|name| format!("{}.{name}", parts[0]));
    Err(ConfigError { place: place(), key, problem: Problem::Unknown { similar } })
}

fn checked(key: &Key, value: &DeValue<'_>) -> Option<Value> {
    Some(match (&key.kind, value) {
        (Kind::Bool, DeValue::Boolean(value)) => Value::Boolean(*value),
        (Kind::Int { min, max }, DeValue::Integer(number)) => {
            let number = i64::from_str_radix(number.as_str(), number.radix()).ok()?;
            if !(*min..=*max).contains(&u64::try_from(number).ok()?) {
                return None;
            }
            Value::Integer(number)
        }
        (Kind::Choice(words), DeValue::String(text)) if words.contains(&&**text) => text.to_string().into(),
        (Kind::Text(rule), DeValue::String(text)) if (rule.holds)(text) => text.to_string().into(),
        (Kind::Secret, DeValue::String(text)) => text.to_string().into(),
        (Kind::Texts(rule), DeValue::Array(items)) => {
            let texts = items.iter().map(|item| item.get_ref().as_str().filter(|text| (rule.holds)(text)));
            Value::Array(texts.map(|text| text.map(Value::from)).collect::<Option<_>>()?)
        }
        (Kind::Secrets, DeValue::Table(table)) => {
            let entries =
                table.iter().map(|(name, value)| Some((name.get_ref().to_string(), value.get_ref().as_str()?.into())));
            Value::Table(entries.collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

/// The dotted path, unless a part of it might be a pasted key rather than a name.
fn printable(parts: &[&str]) -> Option<String> {
    let is_name = |part: &&str| {
        part.len() <= 40
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
            && part.bytes().filter(u8::is_ascii_digit).count() <= 3
            && !part.starts_with("sk-")
    };
    parts.iter().all(is_name).then(|| parts.join("."))
}

/// The key that reads most like `path`, with the names of `path` in it.
fn similar(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('.').collect();
    let named = |key: &Key| -> String {
        let pattern = key.path.split('.').enumerate();
        let parts = pattern.map(|(i, part)| if part == "*" { parts.get(i).copied().unwrap_or("*") } else { part });
        parts.collect::<Vec<_>>().join(".")
    };
    let all: Vec<String> = keys().map(named).filter(|key| !key.contains('*')).collect();
    // A key in the wrong section, or at the top, is more likely than a typing error.
    let name = parts.last().copied().unwrap_or_default();
    let same_name = all.iter().find(|key| key.rsplit('.').next() == Some(name));
    same_name.cloned().or_else(|| closest(path, all.iter().map(String::as_str)))
}

fn closest<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<String> {
    let scored = words.map(|other| (strsim::damerau_levenshtein(word, other), other));
    // A third of the word may differ; beyond that it is a guess.
    scored.filter(|(distance, _)| *distance <= 1 + word.len() / 4).min_by_key(|(d, _)| *d).map(|(_, w)| w.into())
}

fn line_of(text: &[u8], offset: usize) -> usize {
    text[..offset.min(text.len())].split(|b| *b == b'\n').count()
}
