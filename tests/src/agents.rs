//! The agent programs that `tests/run` installed from `tests/agents/package-lock.json`.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The directory of their launchers, to put on a `PATH`.
pub fn bin() -> PathBuf {
    let lock = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("agents/package-lock.json"))
        .expect("tests/agents/package-lock.json is part of the sources");
    let hash = Sha256::digest(lock)[..8].iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").unwrap_or_else(|| set("HOME").expect("HOME is set").join(".cache"));
    let dir = cache.join("scv-tests").join(format!("agents-{hash}"));
    assert!(dir.join("complete").exists(), "no agent programs in {}: run tests/run once", dir.display());
    dir.join("node_modules/.bin")
}

/// The launcher of the agent program `name`.
pub fn program(name: &str) -> PathBuf {
    let path = bin().join(name);
    assert!(path.exists(), "{} is not there; is it in tests/agents/package.json?", path.display());
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_programs_are_the_installed_ones() {
        let lock = include_str!("../agents/package.json");
        let pinned: serde_json::Value = serde_json::from_str(lock).unwrap();
        for (package, version) in pinned["dependencies"].as_object().unwrap() {
            let manifest = bin().join("..").join(package).join("package.json");
            let text = std::fs::read_to_string(&manifest).unwrap();
            let installed: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(&installed["version"], version, "{package}");
        }
        let env = crate::TestEnv::new();
        let output = crate::Program::start(env.command_at(&program("codex")).arg("--version")).wait();
        assert_eq!(output.exits(0).stdout.trim(), "codex-cli 0.171.0");
        env.finish();
    }
}
