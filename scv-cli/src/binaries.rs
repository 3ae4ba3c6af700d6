//! Finds the other two binaries of this release.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use shared::RELEASE;

use crate::context::Context;
use crate::error::CliError;

/// `scvd` or `scv-worker` of this release: beside us, then in `../libexec/scv`, then on `PATH`.
/// The first one found has to be of this release.
pub(crate) fn find(name: &str, context: &Context) -> Result<PathBuf, CliError> {
    let ours = std::env::current_exe().map_err(|error| CliError::failed("cannot tell where scv is").because(error))?;
    let places = places(&ours, context.env.get("PATH").map(String::as_str));
    let Some(path) = places.iter().map(|dir| dir.join(name)).find(|path| is_executable(path)) else {
        return Err(CliError::usage(format!(
            "cannot find {name} beside {}, in ../libexec/scv or on PATH",
            ours.display()
        ))
        .hint("install scv, scvd and scv-worker of one release into one directory"));
    };
    check_release(name, &path)?;
    Ok(path)
}

fn places(ours: &Path, path: Option<&str>) -> Vec<PathBuf> {
    let beside = ours.parent().unwrap_or(Path::new("/"));
    let mut places = vec![beside.to_owned()];
    places.extend(beside.parent().map(|up| up.join("libexec/scv")));
    // A relative entry of PATH would mean another program in each directory.
    places.extend(std::env::split_paths(path.unwrap_or_default()).filter(|dir| dir.is_absolute()));
    places
}

fn is_executable(path: &Path) -> bool {
    use rustix::fs::{Access, access};
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// Runs `name --version`, which prints `name X.Y.Z`.
fn check_release(name: &str, path: &Path) -> Result<(), CliError> {
    let cannot = || CliError::usage(format!("cannot run {}", path.display()));
    let output = Command::new(path)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| cannot().because(error))?;
    let told = String::from_utf8_lossy(&output.stdout);
    match release_of(name, &told) {
        Some(RELEASE) => Ok(()),
        Some(other) => {
            Err(CliError::usage(format!("{} is release {other}, and this scv is {RELEASE}", path.display()))
                .hint("install scv, scvd and scv-worker of one release into one directory"))
        }
        None => Err(cannot().hint(format!("`{} --version` does not say `{name} {RELEASE}`", path.display()))),
    }
}

fn release_of<'a>(name: &str, told: &'a str) -> Option<&'a str> {
    told.strip_prefix(name)?.strip_prefix(' ').map(str::trim).filter(|release| !release.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_look_beside_us_then_in_libexec_then_on_the_path() {
        let places = places(Path::new("/opt/scv/bin/scv"), Some("/usr/bin:.:/bin"));
        assert_eq!(places, ["/opt/scv/bin", "/opt/scv/libexec/scv", "/usr/bin", "/bin"].map(PathBuf::from));
    }

    #[test]
    fn a_release_is_read_only_from_the_right_program() {
        assert_eq!(release_of("scvd", "scvd 1.2.3\n"), Some("1.2.3"));
        assert_eq!(release_of("scvd", "scv-worker 1.2.3\n"), None);
        assert_eq!(release_of("scvd", ""), None);
    }
}
