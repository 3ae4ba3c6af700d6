//! The HTTP client of one endpoint: built with the first request, so that an idle worker has
//! neither TLS nor certificates in memory.
//!
//! Redirects are never followed: the key would go along. Headers that may hold a key are marked
//! sensitive, so no log of the HTTP stack shows them.

use std::cell::OnceCell;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret, SecretString};

use super::Settings;
use super::failure::{Failure, Lost};

/// A host that does not even complete a TCP handshake in this time is down.
const CONNECT_WITHIN: Duration = Duration::from_secs(15);

/// One endpoint.
#[derive(Debug, Default)]
pub(super) struct Http {
    ready: OnceCell<Ready>,
}

#[derive(Debug)]
struct Ready {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

impl Http {
    /// Posts `body` to `<base_url>/responses`; returns with the response's head.
    pub(super) async fn post(&self, settings: &Settings, body: Bytes) -> Result<Response, Failure> {
        let ready = self.ready(settings)?;
        let request = ready.client.post(ready.url.clone()).headers(ready.headers.clone()).body(body);
        request.send().await.map_err(|error| Failure::Lost(Lost::of(&error)))
    }

    fn ready(&self, settings: &Settings) -> Result<&Ready, Failure> {
        if let Some(ready) = self.ready.get() {
            return Ok(ready);
        }
        let url = endpoint(&settings.base_url).map_err(Failure::Settings)?;
        let headers = headers(settings).map_err(Failure::Settings)?;
        let client = client(&url).map_err(|error| Failure::Lost(Lost::of(&error)))?;
        Ok(self.ready.get_or_init(|| Ready { client, url, headers }))
    }
}

/// `<base_url>/responses`, with the query of `base_url`.
fn endpoint(base_url: &str) -> Result<Url, String> {
    let mut url = Url::parse(base_url.trim()).map_err(|error| format!("`base_url` is no URL ({error})"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("`base_url` must start with http:// or https:// and a host".to_owned());
    }
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().push("responses");
    }
    url.set_fragment(None);
    Ok(url)
}

fn headers(settings: &Settings) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    if let Some(key) = &settings.api_key {
        let bearer = SecretString::from(format!("Bearer {}", key.expose_secret().trim()));
        let value = sensitive(&bearer).ok_or("`api_key` holds characters that no HTTP header can carry")?;
        headers.insert(AUTHORIZATION, value);
    }
    for (name, value) in &settings.headers {
        let invalid = || format!("`headers` has `{}`, which is no valid HTTP header", name.escape_debug());
        let key = HeaderName::try_from(name.as_str()).map_err(|_| invalid())?;
        headers.insert(key, sensitive(value).ok_or_else(invalid)?);
    }
    Ok(headers)
}

fn sensitive(value: &SecretString) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value.expose_secret()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn client(url: &Url) -> reqwest::Result<Client> {
    let builder = Client::builder()
        .user_agent(concat!("scv/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_WITHIN);
    let builder = if is_loopback(url) { builder.no_proxy() } else { builder };
    if is_loopback(url) && url.scheme() == "http" {
        // reqwest wants a TLS configuration in any case. One without certificates costs nothing,
        // where the platform's takes milliseconds and some 400 kB.
        return builder.tls_backend_preconfigured(without_certificates()).build();
    }
    // Fails when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    builder.build()
}

fn without_certificates() -> rustls::ClientConfig {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(rustls::DEFAULT_VERSIONS)
        .expect("ring has the default TLS versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

/// Whether `url` names this machine; no proxy stands between.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// `scheme://host:port/path` of `base_url`, for people: what may hold a key is left out.
pub(super) fn shown(base_url: &str) -> String {
    let Ok(mut url) = Url::parse(base_url.trim()) else { return "base_url".to_owned() };
    url.set_query(None);
    url.set_fragment(None);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    shared::text::one_line(url.as_str().trim_end_matches('/'), 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_is_below_the_base_url() {
        let cases = [
            ("https://api.openai.com/v1", "https://api.openai.com/v1/responses"),
            (" http://127.0.0.1:8080/v1/ ", "http://127.0.0.1:8080/v1/responses"),
            ("http://localhost", "http://localhost/responses"),
            ("https://a.example/x?api-version=1#y", "https://a.example/x/responses?api-version=1"),
        ];
        for (base_url, expected) in cases {
            assert_eq!(endpoint(base_url).unwrap().as_str(), expected);
        }
        for base_url in ["", "api.openai.com/v1", "ftp://a/b", "localhost:80", "http://"] {
            assert!(endpoint(base_url).is_err(), "{base_url:?}");
        }
    }

    #[test]
    fn loopback_is_known_by_name_and_by_address() {
        let loopback = |url: &str| is_loopback(&Url::parse(url).unwrap());
        assert!(
            ["http://localhost:1", "http://a.localhost", "http://127.9.9.9", "http://[::1]:8"]
                .into_iter()
                .all(loopback)
        );
        assert!(!["http://localhost.example", "http://128.0.0.1", "http://[::2]"].into_iter().any(loopback));
    }

    #[test]
    fn no_key_of_a_url_is_shown() {
        assert_eq!(shown("https://me:pw@a.example:8443/v1/?key=k#f"), "https://a.example:8443/v1");
    }

    #[test]
    fn a_key_that_no_header_can_carry_is_named_without_its_value() {
        let mut settings = Settings::new("x", "http://localhost");
        settings.api_key = Some(SecretString::from("top\nsecret"));
        let error = headers(&settings).unwrap_err();
        assert!(error.contains("api_key") && !error.contains("secret"), "{error}");
        settings.api_key = Some(SecretString::from("secret\n"));
        assert!(headers(&settings).unwrap()[AUTHORIZATION].is_sensitive());
    }
}
