use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::*;

struct Case {
    _outside: tempfile::TempDir,
    outside: PathBuf,
    _inside: tempfile::TempDir,
    workspace: Workspace,
}

fn case() -> Case {
    let outside = tempfile::tempdir().unwrap();
    let inside = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(inside.path()).unwrap();
    std::fs::write(outside.path().join("secret"), "outside").unwrap();
    std::fs::create_dir_all(workspace.root().join("a/b")).unwrap();
    std::fs::write(workspace.root().join("a/file"), "inside").unwrap();
    Case { outside: outside.path().canonicalize().unwrap(), _outside: outside, _inside: inside, workspace }
}

impl Case {
    fn at(&self, path: &str) -> PathBuf {
        self.workspace.root().join(path)
    }
    fn open(&self, path: &str) -> Result<File, String> {
        let checked = self.workspace.check(path).map_err(|error| error.to_string())?;
        self.workspace.open_file(checked).map_err(|error| error.to_string())
    }
}

#[test]
fn a_workspace_is_an_existing_absolute_directory() {
    let case = case();
    let open = |path: &Path| Workspace::open(path).unwrap_err().to_string();
    assert_eq!(open(Path::new("a")), "the workspace a has to be an absolute path");
    assert!(open(&case.at("missing")).starts_with("cannot open the workspace /"));
    assert_eq!(open(&case.at("a/file")), format!("the workspace {} is no directory", case.at("a/file").display()));
}

#[test]
fn a_workspace_that_was_made_again_is_the_new_one() {
    let case = case();
    let root = case.workspace.root().to_owned();
    std::fs::remove_dir_all(&root).unwrap();
    assert!(case.open("a/file").unwrap_err().contains("does not exist"));
    std::fs::create_dir_all(root.join("a")).unwrap();
    std::fs::write(root.join("a/file"), "new").unwrap();
    assert_eq!(io::read_to_string(case.open("a/file").unwrap()).unwrap(), "new");
}

#[test]
fn every_way_out_is_refused() {
    let case = case();
    symlink(&case.outside, case.at("out")).unwrap();
    symlink(case.outside.join("secret"), case.at("a/secret")).unwrap();
    symlink("../../../../../../../../etc/passwd", case.at("a/b/passwd")).unwrap();
    symlink("..", case.at("a/up")).unwrap();
    for path in ["../x", "a/../../x", "out/secret", "a/secret", "a/b/passwd", "a/up/../x", "out/../secret"] {
        assert_eq!(case.open(path).unwrap_err(), format!("{path} leads outside the workspace"));
        let place = case.workspace.place(Path::new(path), Parents::Make);
        if !matches!(path, "a/secret" | "a/b/passwd") {
            assert!(matches!(place, Err(PathError::Outside(_))), "{path}: {place:?}");
        }
    }
    let absolute = case.open("/etc/passwd").unwrap_err();
    assert!(absolute.starts_with("/etc/passwd is absolute; name it relative to the workspace /"), "{absolute}");
}

#[test]
fn an_absolute_path_in_the_workspace_is_refused_with_the_relative_one() {
    let case = case();
    let path = case.at("a/file").display().to_string();
    let error = case.open(&path).unwrap_err();
    assert_eq!(error, format!("{path} is absolute; name it relative to the workspace (a/file)"));
}

#[test]
fn symlinks_and_parents_that_stay_inside_are_followed() {
    let case = case();
    symlink("a/file", case.at("link")).unwrap();
    symlink("a", case.at("dir")).unwrap();
    for path in ["link", "dir/file", "a/../a/file", "./a//file"] {
        assert!(case.open(path).is_ok(), "{path}");
    }
    assert_eq!(case.workspace.real(Path::new("dir/file")).unwrap(), Path::new("a/file"));
}

#[test]
fn only_regular_files_are_opened() {
    let case = case();
    nix::unistd::mkfifo(&case.at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("fifo", case.at("link")).unwrap();
    let _listener = UnixListener::bind(case.at("socket")).unwrap();
    for (path, why) in [
        ("fifo", "fifo is a FIFO, not a regular file"),
        ("link", "link is a FIFO, not a regular file"),
        ("socket", "socket is a socket, not a regular file"),
        ("a", "a is a directory; name a file in it"),
        ("", "the path has to name something in the workspace"),
        ("a\0b", "the path has to name something in the workspace"),
        ("missing", "missing does not exist in the workspace"),
    ] {
        assert_eq!(case.open(path).unwrap_err(), why);
    }
    let dev = Workspace::open(Path::new("/dev")).unwrap();
    let device = dev.open_file(Path::new("zero")).unwrap_err().to_string();
    assert_eq!(device, "zero is a device, not a regular file");
}

#[test]
fn a_path_longer_than_linux_takes_is_refused() {
    let case = case();
    assert!(case.open(&"a/".repeat(2048)).unwrap_err().contains("4096 bytes"));
    assert!(case.open(&"a".repeat(300)).unwrap_err().starts_with("cannot open aaa"));
}

#[test]
fn a_place_needs_its_directory_or_makes_it() {
    let case = case();
    let place = |path: &str, parents| case.workspace.place(Path::new(path), parents);
    assert_eq!(place("x/y/z", Parents::Need).unwrap_err().to_string(), "x/y does not exist in the workspace");
    let made = place("x/y/z", Parents::Make).unwrap();
    assert_eq!(made.name, "z");
    assert!(made.look().unwrap().is_none());
    assert!(case.at("x/y").is_dir());
    for path in ["a/", "a/.", ".", "a/..", "a/b/"] {
        assert!(matches!(place(path, Parents::Make), Err(PathError::Directory(_))), "{path}");
    }
}

#[test]
fn a_place_does_not_follow_a_symlink() {
    let case = case();
    symlink("file", case.at("a/link")).unwrap();
    let place = case.workspace.place(Path::new("a/link"), Parents::Need).unwrap();
    assert_eq!(place.look_at_file().unwrap_err().to_string(), "a/link is a symlink, not a regular file");
    assert!(place.open_file().is_err());
}

#[test]
fn the_directory_of_an_agent_stays_below_the_workspace() {
    let case = case();
    symlink(case.at("a/b"), case.at("inside")).unwrap();
    symlink(&case.outside, case.at("out")).unwrap();
    for path in ["a/b", "inside", &case.at("a/b").display().to_string(), "a/../a/b"] {
        assert_eq!(case.workspace.resolve_dir(path).unwrap(), case.at("a/b"), "{path}");
    }
    assert_eq!(case.workspace.resolve_dir(".").unwrap(), case.workspace.root());
    for path in ["..", "out", "/", "a/../.."] {
        let error = case.workspace.resolve_dir(path).unwrap_err().to_string();
        assert_eq!(error, format!("{path} leads outside the workspace"));
    }
    assert_eq!(case.workspace.resolve_dir("a/file").unwrap_err().to_string(), "a/file is no directory");
    assert_eq!(case.workspace.resolve_dir("no").unwrap_err().to_string(), "no does not exist in the workspace");
}
