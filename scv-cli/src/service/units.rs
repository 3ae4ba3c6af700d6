//! The two units of an instance, filled in from `systemd/`.

use std::path::{Path, PathBuf};

use shared::fs::{self, Sync};
use shared::layout::Layout;

const SERVICE: &str = include_str!("../../../systemd/scvd.service");
const SOCKET: &str = include_str!("../../../systemd/scvd.socket");

/// Of a socket's address, with the NUL at its end (unix(7)): systemd knows no way around it.
const MAX_SOCKET_BYTES: usize = 107;

/// Ours have one or two KiB, and a `PATH`.
const MAX_UNIT_BYTES: u64 = 1 << 20;

/// The names of an instance's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    /// The supervisor.
    pub service: String,
    /// Its socket.
    pub socket: String,
    /// What holds the workers' scopes.
    pub slice: String,
}

impl Names {
    /// Those of this home.
    pub(crate) fn of(layout: &Layout) -> Self {
        let instance = layout.instance();
        Self {
            service: format!("scvd-{instance}.service"),
            socket: format!("scvd-{instance}.socket"),
            slice: format!("scv-{instance}.slice"),
        }
    }
}

/// Why systemd cannot serve a home.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    /// A unit file is lines of UTF-8.
    #[error("{0:?} has characters that a unit file cannot have")]
    Characters(PathBuf),
    /// The address of a socket has its limit.
    #[error("the path of its socket has {0} bytes, and systemd takes at most {MAX_SOCKET_BYTES}")]
    TooLong(usize),
}

/// The content of the units, service first.
pub(crate) fn contents(layout: &Layout, scvd: &Path, path: &str) -> Result<[String; 2], Unfit> {
    let names = Names::of(layout);
    let socket = layout.socket();
    let (home, socket) = (line(layout.home())?, line(&socket)?);
    if socket.len() > MAX_SOCKET_BYTES {
        return Err(Unfit::TooLong(socket.len()));
    }
    let service = fill(
        SERVICE,
        &[
            ("@HOME@", specifiers(home)),
            ("@SOCKET_UNIT@", names.socket.clone()),
            ("@SCVD@", argument(line(scvd)?)),
            ("@HOME_ARGUMENT@", argument(home)),
            // No `$` is expanded in an assignment.
            ("@PATH@", quoted(&specifiers(&format!("PATH={path}")))),
        ],
    );
    let socket = fill(
        SOCKET,
        &[
            ("@HOME@", specifiers(home)),
            ("@SOCKET@", specifiers(socket)),
            ("@SCVD@", argument(line(scvd)?)),
            ("@HOME_ARGUMENT@", argument(home)),
        ],
    );
    Ok([service, socket])
}

/// The units as they are installed, service first; none unless both are.
pub(crate) fn installed(dir: &Path, names: &Names) -> Option<[String; 2]> {
    let read = |name: &String| String::from_utf8(fs::read_bounded(&dir.join(name), MAX_UNIT_BYTES).ok()?).ok();
    Some([read(&names.service)?, read(&names.socket)?])
}

/// The `PATH` that a service unit of ours sets.
pub(crate) fn path_in(service: &str) -> Option<String> {
    let quoted = service.lines().find_map(|line| line.strip_prefix("Environment=\"PATH=")?.strip_suffix('"'))?;
    let (mut path, mut chars) = (String::new(), quoted.chars());
    while let Some(c) = chars.next() {
        // Both escapes are undone: `\\` and `\"` of a quoted word, `%%` of a specifier.
        path.push(if c == '\\' || c == '%' { chars.next()? } else { c });
    }
    Some(path)
}

/// Writes the units where they differ; whether one did.
pub(crate) fn install(dir: &Path, names: &Names, contents: &[String; 2]) -> std::io::Result<bool> {
    std::fs::create_dir_all(dir)?;
    let mut changed = false;
    for (name, content) in [&names.service, &names.socket].into_iter().zip(contents) {
        let path = dir.join(name);
        if std::fs::read_to_string(&path).ok().as_ref() != Some(content) {
            fs::replace(&path, content.as_bytes(), Sync::Durable)?;
            changed = true;
        }
    }
    Ok(changed)
}

/// Removes the units; whether there was one.
pub(crate) fn remove(dir: &Path, names: &Names) -> std::io::Result<bool> {
    let mut removed = false;
    for name in [&names.service, &names.socket] {
        removed |= dir.join(name).exists();
        fs::remove(&dir.join(name))?;
    }
    Ok(removed)
}

fn fill(template: &str, values: &[(&str, String)]) -> String {
    // One pass a line: a value that looks like a place is no place.
    let fill_line = |line: &str| {
        let place = values.iter().filter(|(place, _)| line.contains(place));
        let mut parts: Vec<(usize, &str, &str)> =
            place.filter_map(|(place, value)| Some((line.find(place)?, *place, value.as_str()))).collect();
        parts.sort_unstable();
        let (mut filled, mut from) = (String::new(), 0);
        for (at, place, value) in parts {
            filled.push_str(&line[from..at]);
            filled.push_str(value);
            from = at + place.len();
        }
        filled.push_str(&line[from..]);
        filled
    };
    template.lines().map(|line| fill_line(line) + "\n").collect()
}

fn line(path: &Path) -> Result<&str, Unfit> {
    path.to_str().filter(|path| !path.chars().any(char::is_control)).ok_or_else(|| Unfit::Characters(path.to_owned()))
}

/// systemd.unit(5): `%` begins a specifier.
fn specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

/// systemd.syntax(7): within double quotes, backslash and quote are escaped.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// systemd.service(5): in a command line `$` begins a variable.
fn argument(text: &str) -> String {
    quoted(&specifiers(text).replace('$', "$$"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(name: &str) -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(&dir.path().join(name)).unwrap();
        (dir, layout)
    }

    #[test]
    fn every_place_is_filled_and_odd_paths_are_escaped() {
        let (_dir, layout) = layout("a b%h$x\"@PATH@");
        let [service, socket] = contents(&layout, Path::new("/opt/$v/scvd"), "/bin:/a%b").unwrap();
        let home = layout.home().to_str().unwrap();
        let escaped = home.replace('%', "%%").replace('$', "$$").replace('"', "\\\"");
        assert!(service.contains(&format!("ExecStart=\"/opt/$$v/scvd\" --scv-home \"{escaped}\"\n")), "{service}");
        assert!(service.contains("Environment=\"PATH=/bin:/a%%b\"\n"), "{service}");
        assert!(socket.contains(&format!("ListenStream={}/state/server.sock\n", home.replace('%', "%%"))), "{socket}");
        for place in ["@HOME@", "@SOCKET@", "@SCVD@", "@SOCKET_UNIT@"] {
            assert!(!service.contains(place) && !socket.contains(place), "{place}");
        }
    }

    #[test]
    fn the_path_is_read_back_as_it_was_given() {
        let (_dir, layout) = layout("home");
        for path in ["/bin", "/a%b:/c d:/e\"f:/g\\h:/i$j", "%%\\\\\"\""] {
            let [service, _] = contents(&layout, Path::new("/scvd"), path).unwrap();
            assert_eq!(path_in(&service).as_deref(), Some(path));
        }
        assert_eq!(path_in("[Service]\nExecStart=/x\n"), None);
    }

    #[test]
    fn what_a_unit_cannot_name_is_refused() {
        let (_dir, layout) = layout(&"x".repeat(100));
        assert!(matches!(contents(&layout, Path::new("/scvd"), "/bin"), Err(Unfit::TooLong(_))));
        let (_dir, layout) = self::layout("a\nb");
        assert!(matches!(contents(&layout, Path::new("/scvd"), "/bin"), Err(Unfit::Characters(_))));
    }

    #[test]
    fn units_are_written_when_they_differ_and_removed_whole() {
        let (dir, layout) = layout("home");
        let (names, units) = (Names::of(&layout), dir.path().join("config/systemd/user"));
        let first = contents(&layout, Path::new("/scvd"), "/bin").unwrap();
        assert_eq!(installed(&units, &names), None);
        assert!(install(&units, &names, &first).unwrap());
        assert_eq!(installed(&units, &names).as_ref(), Some(&first));
        assert!(!install(&units, &names, &first).unwrap());
        assert!(install(&units, &names, &contents(&layout, Path::new("/new/scvd"), "/bin").unwrap()).unwrap());
        assert!(remove(&units, &names).unwrap());
        assert!(!remove(&units, &names).unwrap());
    }

    #[test]
    fn no_directive_confines_what_sessions_do() {
        let sticky = ["NoNewPrivileges", "Protect", "Private", "Restrict", "SystemCall", "Capability", "ReadOnly"];
        for directive in SERVICE.lines().filter(|line| !line.starts_with('#')) {
            assert!(!sticky.iter().any(|name| directive.starts_with(name)), "{directive}");
        }
    }
}
