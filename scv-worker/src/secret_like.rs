//! Names of files that often hold secrets.
//!
//! A look at the name only: it makes a person look twice, and keeps nothing from a model that can
//! run commands.

use std::path::{Component, Path};

/// A name that begins so is secret-like.
const STARTS: [&str; 1] = [".env"];

/// A name that has this anywhere is secret-like.
const PARTS: [&str; 2] = ["credential", "private_key"];

/// A name that ends so is secret-like: keys, certificates with keys, password safes.
const ENDS: [&str; 6] = [".env", ".kdbx", ".key", ".p12", ".pem", ".pfx"];

/// Private keys of OpenSSH (ssh-keygen(1), `-t`), also with a suffix such as `.bak` or `_work`;
/// the `.pub` beside each is public.
const SSH_KEYS: [&str; 5] = ["id_dsa", "id_ecdsa", "id_ed25519", "id_rsa", "id_xmss"];

/// Whether any component of `path` has a secret-like name, in any case.
pub(crate) fn secret_like(path: &Path) -> bool {
    path.components().any(|component| match component {
        Component::Normal(name) => is_secret_like(&name.to_string_lossy().to_lowercase()),
        _ => false,
    })
}

fn is_secret_like(name: &str) -> bool {
    STARTS.iter().any(|start| name.starts_with(start))
        || PARTS.iter().any(|part| name.contains(part))
        || ENDS.iter().any(|end| name.ends_with(end))
        || SSH_KEYS.iter().any(|key| name.starts_with(key)) && !has_ending(name, "pub")
}

fn has_ending(name: &str, ending: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_often_hold_secrets_are_secret_like() {
        for path in [
            ".env",
            "app/.env.local",
            ".envrc",
            "deploy/prod.env",
            "credentials.json",
            "config/Credentials.toml",
            "credentials/readme.txt",
            "my_private_key.txt",
            "tls/server.pem",
            "server.KEY",
            "a.p12",
            "a.pfx",
            "safe.kdbx",
            ".ssh/id_rsa",
            "id_ed25519",
            "id_ed25519_sk",
            "id_ecdsa.bak",
        ] {
            assert!(secret_like(Path::new(path)), "{path} should be secret-like");
        }
    }

    #[test]
    fn ordinary_names_are_not() {
        for path in
            ["src/main.rs", "environment.rs", "keys.md", "monkey", "pem", "id_rsa.pub", "grid_rsa", "a.keyboard", ".."]
        {
            assert!(!secret_like(Path::new(path)), "{path} should not be secret-like");
        }
    }
}
