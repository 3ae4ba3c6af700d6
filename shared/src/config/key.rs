//! What a key may hold, as data: every section lists its keys with it.
//!
//! The same table reads files, variables and flags, bounds what a project may change, and
//! tells people what is allowed. It knows nothing of layers.

/// One key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its dotted path; `*` stands for a name, as in `providers.*.model`.
    pub path: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// What a project's own configuration may do to it.
    pub project: Tighten,
}

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number, both ends included.
    Int {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A text.
    Text(Rule),
    /// A list of texts.
    Texts(Rule),
    /// A text that is never shown.
    Secret,
    /// A table of texts that are never shown.
    Secrets,
}

/// What a text may be.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// For people: `a name of letters and digits`.
    pub allowed: &'static str,
    /// Whether a text is allowed.
    pub holds: fn(&str) -> bool,
}

/// What an untrusted project layer may do to a key. Whatever it does makes a session stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tighten {
    /// Nothing: it belongs to the instance's own configuration.
    Never,
    /// Lower the number.
    Lower,
    /// Lower the number, where 0 means that there is no limit.
    Budget,
    /// Turn it off.
    Off,
    /// Set it to `off`.
    OffWord,
    /// Name a stricter approval policy.
    Policy,
    /// Add text to the end.
    Append,
    /// Leave entries out.
    Subset,
}

/// A whole number from `min` to `max`.
pub(super) const fn int(min: u64, max: u64) -> Kind {
    Kind::Int { min, max }
}

/// Any text.
pub(super) const ANY: Rule = Rule { allowed: "a text", holds: |_| true };

/// The name of a variable, or nothing.
pub(super) const ENV_NAME: Rule = Rule {
    allowed: "the name of an environment variable, not its value",
    holds: |text| {
        text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
            && !text.starts_with(|c: char| c.is_ascii_digit())
    },
};

/// An endpoint, or nothing. User names, passwords and queries may hold a secret, and are refused.
pub(super) const URL: Rule = Rule {
    allowed: "a http:// or https:// address without user name, password, query or fragment",
    holds: |text| {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        text.is_empty()
            || rest.is_some_and(|rest| {
                !rest.is_empty()
                    && !rest.starts_with('/')
                    && !rest.contains(|c: char| matches!(c, '@' | '?' | '#') || c.is_whitespace() || c.is_control())
            })
    },
};

impl Kind {
    /// What is allowed, for people.
    pub fn allowed(&self) -> String {
        match self {
            Self::Bool => "true or false".into(),
            Self::Int { min, max: u64::MAX } => format!("a whole number of at least {min}"),
            Self::Int { min, max } => format!("a whole number from {min} to {max}"),
            Self::Choice([one]) => format!("\"{one}\""),
            Self::Choice(words) => format!("one of \"{}\"", words.join("\", \"")),
            Self::Text(rule) => rule.allowed.into(),
            Self::Texts(rule) => format!("a list; each entry {}", rule.allowed),
            Self::Secret => "a text".into(),
            Self::Secrets => "a table of texts".into(),
        }
    }

    /// Whether the value is never shown.
    pub fn is_secret(&self) -> bool {
        matches!(self, Self::Secret | Self::Secrets)
    }
}

/// Where a path leads.
pub(super) enum Found {
    Key(&'static Key),
    /// To a table that holds keys.
    Table,
    Nothing,
}

/// Looks a path up in `keys`.
pub(super) fn find(keys: impl Iterator<Item = &'static Key>, path: &[&str]) -> Found {
    let mut found = Found::Nothing;
    let section = path.first().copied().unwrap_or_default();
    // Most keys are in another section: told apart before anything is split.
    for key in keys.filter(|key| key.path.starts_with(section)) {
        let mut pattern = key.path.split('.');
        if path.iter().all(|part| pattern.next().is_some_and(|wanted| wanted == "*" || wanted == *part)) {
            if pattern.next().is_none() {
                return Found::Key(key);
            }
            found = Found::Table;
        }
    }
    found
}

/// Declares a section once: the type that the code reads, its defaults, and its table of keys.
///
/// One line an entry: `name: type = default, what is allowed, what a project may do;`.
macro_rules! section {
    (
        $(#[$about:meta])*
        $name:ident in $path:literal {
            $( $(#[$doc:meta])* $field:ident: $type:ty = $default:expr, $kind:expr, $project:ident; )*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $( $(#[$doc])* #[doc = concat!("\n\nDefault: `", stringify!($default), "`.")] pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )* }
            }
        }

        impl $name {
            /// The keys of this section.
            pub(in crate::config) const KEYS: &'static [$crate::config::key::Key] = &[
                $( $crate::config::key::Key {
                    path: concat!($path, ".", stringify!($field)),
                    kind: $kind,
                    project: $crate::config::key::Tighten::$project,
                }, )*
            ];
        }
    };
}
pub(super) use section;
