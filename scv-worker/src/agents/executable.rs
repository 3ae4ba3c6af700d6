//! Where a program is: the user's own install directories first, then `PATH`.
//!
//! That is the order of a login shell; the `PATH` of a user service leaves those directories out.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::home::Env;

/// Where users install programs, below their home.
const LOCAL_BIN: &str = ".local/bin";

/// The absolute path of `command`, looked up in `env`: `~/.local/bin`, `bin_dirs` (below the
/// user's home), then `PATH`. A `command` with a slash has to be an absolute path or to begin
/// with `~/`.
pub(crate) fn resolve(command: &str, bin_dirs: &[&str], env: &Env) -> Option<PathBuf> {
    let home = env.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    if command.contains('/') {
        let path = match command.strip_prefix("~/") {
            Some(below) => home?.join(below),
            None => PathBuf::from(command),
        };
        return (path.is_absolute() && is_executable(&path)).then_some(path);
    }
    let own = [LOCAL_BIN].iter().chain(bin_dirs).filter_map(|below| Some(home.as_ref()?.join(below)));
    let path = env.get("PATH").map(String::as_str).unwrap_or_default();
    own.chain(std::env::split_paths(path))
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(command))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/bin/bash", path).unwrap();
    }

    fn env(home: &Path, path: &str) -> Env {
        [("HOME".into(), home.to_str().unwrap().into()), ("PATH".into(), path.into())].into()
    }

    #[test]
    fn the_users_own_install_comes_before_path() {
        let dir = tempfile::tempdir().unwrap();
        let (home, bin) = (dir.path().join("u"), dir.path().join("bin"));
        install(&bin.join("tool"));
        let env = env(&home, bin.to_str().unwrap());
        assert_eq!(resolve("tool", &[".tool/bin"], &env), Some(bin.join("tool")));
        install(&home.join(".tool/bin/tool"));
        assert_eq!(resolve("tool", &[".tool/bin"], &env), Some(home.join(".tool/bin/tool")));
        install(&home.join(".local/bin/tool"));
        assert_eq!(resolve("tool", &[".tool/bin"], &env), Some(home.join(".local/bin/tool")));
    }

    #[test]
    fn only_absolute_paths_of_executable_files_resolve() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("data"), "").unwrap();
        install(&dir.path().join("x/tool"));
        let env = env(dir.path(), &format!(":relative:{}", dir.path().display()));
        assert_eq!(resolve("data", &[], &env), None);
        assert_eq!(resolve("x", &[], &env), None, "a directory is no program");
        assert_eq!(resolve("x/tool", &[], &env), None);
        assert_eq!(resolve("~/x/tool", &[], &env), Some(dir.path().join("x/tool")));
        assert_eq!(resolve("/bin/bash", &[], &env), Some("/bin/bash".into()));
        assert_eq!(resolve("bash", &[], &Env::new()), None);
    }
}
