//! `[web]`: fetching and searching.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::key::{ENV_NAME, Kind, Rule, URL, int, section};

/// Who searches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Search {
    /// Nobody.
    #[default]
    Off,
    /// The model's provider.
    Provider,
    /// A `SearXNG` server.
    Searxng,
    /// The Brave Search API.
    Brave,
}

/// A host's name.
const HOST: Rule = Rule {
    allowed: "a host name such as \"docs.rs\"",
    holds: |text| {
        !text.is_empty()
            && text.len() <= 253
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-')
    },
};

/// Domains that are fetched unasked: documentation that names nobody's data.
const KNOWN_DOMAINS: [&str; 6] =
    ["docs.rs", "crates.io", "doc.rust-lang.org", "docs.python.org", "pypi.org", "developer.mozilla.org"];

section! {
    /// `[web]`
    Web in "web" {
        /// Whether there are web tools at all.
        enabled: bool = true, Kind::Bool, Off;
        /// What one fetch reads, in bytes; 1 KiB to 64 MiB.
        fetch_max_bytes: usize = 2_097_152, int(1024, 64 << 20), Lower;
        /// Limit of one fetch, in seconds; 1 to 600.
        fetch_timeout_seconds: u64 = 30, int(1, 600), Lower;
        /// Redirects of one fetch; at most 20.
        max_redirects: usize = 5, int(0, 20), Lower;
        /// Domains that are fetched over HTTPS without an approval.
        auto_approve_domains: Vec<String> = KNOWN_DOMAINS.map(String::from).into(), Kind::Texts(HOST), Subset;
        /// Whether addresses of private networks may be fetched.
        allow_private_addresses: bool = false, Kind::Bool, Off;
        /// Who searches.
        search: Search = Search::Off, Kind::Choice(&["off", "provider", "searxng", "brave"]), OffWord;
        /// The `SearXNG` server.
        searxng_url: String = String::new(), Kind::Text(URL), Never;
        /// The Brave Search endpoint.
        brave_url: String = "https://api.search.brave.com/res/v1/web/search".into(), Kind::Text(URL), Never;
        /// The variable that holds the Brave Search key.
        brave_api_key_env: String = "BRAVE_SEARCH_API_KEY".into(), Kind::Text(ENV_NAME), Never;
        /// Results of one search; at most 50.
        max_search_results: usize = 8, int(1, 50), Lower;
    }
}
