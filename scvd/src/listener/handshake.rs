//! The handshake.

use shared::protocol::client::{Initialize, Peer};
use shared::protocol::server::Reply;
use shared::protocol::{ErrorCode, FEATURES, PROTOCOL_VERSION, ServerEvent};
use shared::text;

/// What is kept of a client's name and version. A worker gets them in a line of its link, which
/// has a bound of its own.
const NAME_BYTES: usize = 256;

/// What a connection said of itself in `initialize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    /// Who it is.
    pub(super) peer: Peer,
    /// Which of our additions it gets.
    pub(super) features: Vec<String>,
}

impl Greeting {
    /// Whether the connection asked for `feature`.
    pub(super) fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|own| own == feature)
    }
}

/// The answer to `initialize`; without a greeting the connection ends.
pub(super) fn initialize(message: Initialize) -> (ServerEvent, Option<Greeting>) {
    let Initialize { request_id, protocol_version, client, features } = message;
    if protocol_version != PROTOCOL_VERSION {
        let why = format!(
            "this server (scvd {}) speaks version {PROTOCOL_VERSION} of the protocol, not {protocol_version}",
            shared::RELEASE
        );
        return (ServerEvent::fatal(Some(request_id), ErrorCode::VersionMismatch, why), None);
    }
    let features: Vec<String> =
        FEATURES.iter().filter(|known| features.iter().any(|asked| asked == *known)).map(|&f| f.to_owned()).collect();
    let answer = ServerEvent::Reply(Reply::Initialized {
        request_id,
        protocol_version: PROTOCOL_VERSION,
        server: Peer { name: "scvd".into(), version: shared::RELEASE.into() },
        features: features.clone(),
    });
    let peer =
        Peer { name: text::one_line(&client.name, NAME_BYTES), version: text::one_line(&client.version, NAME_BYTES) };
    (answer, Some(Greeting { peer, features }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(protocol_version: u32, features: &[&str]) -> Initialize {
        Initialize {
            request_id: "1".into(),
            protocol_version,
            client: Peer::default(),
            features: features.iter().map(|&f| f.to_owned()).collect(),
        }
    }

    #[test]
    fn only_known_features_are_in_force_each_once() {
        let (_, greeting) = initialize(message(3, &["watch", "x", "attach", "watch"]));
        assert_eq!(greeting.unwrap().features, ["attach", "watch"]);
    }

    #[test]
    fn a_long_name_is_cut() {
        let mut message = message(3, &[]);
        message.client.name = "n".repeat(1 << 20);
        let (_, greeting) = initialize(message);
        assert_eq!(greeting.unwrap().peer.name.len(), NAME_BYTES);
    }

    #[test]
    fn another_version_is_fatal() {
        let (answer, greeting) = initialize(message(2, &[]));
        assert_eq!(greeting, None);
        let ServerEvent::Reply(Reply::Error(error)) = answer else { panic!("{answer:?}") };
        assert!(error.fatal);
        assert_eq!(error.code, ErrorCode::VersionMismatch);
    }
}
