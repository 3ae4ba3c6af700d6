use std::os::unix::fs::{PermissionsExt as _, symlink};

use shared::layout::Layout;

use super::*;

const SESSION: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

struct Case {
    dir: tempfile::TempDir,
    layout: Layout,
}

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(&dir.path().join("home")).unwrap();
        Self { dir, layout }
    }
    fn file(&self, name: &str, content: &str) -> Attachment {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        at(path)
    }
    fn session(&self) -> SessionDir {
        let session = self.layout.session(SESSION.parse().unwrap());
        std::fs::create_dir_all(session.path()).unwrap();
        session
    }
    fn kept(&self) -> PathBuf {
        self.session().attachments()
    }
    fn store(&self, attachments: &[Attachment]) -> Result<Vec<Attachment>, String> {
        store(&self.session(), attachments).map_err(Into::into)
    }
    fn count(&self) -> usize {
        std::fs::read_dir(self.kept()).map_or(0, Iterator::count)
    }
}

fn at(path: PathBuf) -> Attachment {
    Attachment { kind: "file".to_owned(), path, name: None, mime: None, size: 0, transcript: None }
}

#[test]
fn files_are_copied_privately_under_unique_names() {
    let case = Case::new();
    let sent = case.file("a.txt", "hello");
    let stored = case.store(&[sent.clone(), sent.clone()]).unwrap();
    std::fs::write(&sent.path, "changed afterwards").unwrap();
    assert_ne!(stored[0].path, stored[1].path);
    for attachment in &stored {
        assert_eq!(std::fs::read_to_string(&attachment.path).unwrap(), "hello");
        assert_eq!(std::fs::metadata(&attachment.path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(attachment.path.starts_with(case.kept()));
        assert!(attachment.path.to_string_lossy().ends_with("-a.txt"));
        assert_eq!(attachment, &Attachment { path: attachment.path.clone(), size: 5, ..sent.clone() });
    }
}

#[test]
fn only_regular_files_by_absolute_paths_are_taken() {
    let case = Case::new();
    let path = |name: &str| case.dir.path().join(name);
    let file = case.file("a", "");
    symlink(&file.path, path("link")).unwrap();
    nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    for name in ["link", "fifo", "socket", ""] {
        let why = format!("the attachment {} is no regular file", path(name).display());
        assert_eq!(case.store(&[at(path(name))]), Err(why));
    }
    let relative = "the attachment a has to be named by an absolute path".to_owned();
    assert_eq!(case.store(&[at("a".into())]), Err(relative));
    assert!(case.store(&[at(path("missing"))]).unwrap_err().starts_with("cannot read the attachment /"));
}

#[test]
fn one_bad_file_leaves_nothing_of_the_others() {
    let case = Case::new();
    let good = case.file("a", "hello");
    assert!(case.store(&[good, at("/nowhere".into())]).is_err());
    assert_eq!(case.count(), 0);
}

#[test]
fn counts_and_sizes_over_the_limit_are_refused() {
    let case = Case::new();
    let small = case.file("a", "");
    let why = "a prompt takes at most 16 attachments, not 17".to_owned();
    assert_eq!(case.store(&vec![small.clone(); MAX_FILES + 1]), Err(why));
    assert_eq!(case.store(&vec![small; MAX_FILES]).unwrap().len(), MAX_FILES);

    let large = case.dir.path().join("large");
    File::create(&large).unwrap().set_len(MAX_BYTES + 1).unwrap();
    let why = format!("the attachment {} has 26214401 bytes; at most 26214400 are taken", large.display());
    assert_eq!(case.store(&[at(large)]), Err(why));
    assert_eq!(case.count(), MAX_FILES);
}

#[test]
fn names_are_harmless() {
    let named = |name: &str| Attachment { name: Some(name.to_owned()), ..at("/tmp/from path.png".into()) };
    for (given, expected) in [
        ("photo.png", "photo.png"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        (".bashrc", "bashrc"),
        ("..", "file"),
        ("a\nb\0c;$(d).txt", "a_b_c___d_.txt"),
        ("漢字 1.pdf", "漢字_1.pdf"),
        ("  ", "from_path.png"),
    ] {
        assert_eq!(name(&named(given)), expected, "{given:?}");
    }
    let long = name(&named(&format!("{}.tar", "漢".repeat(400))));
    assert!(long.len() <= NAME_BYTES && long.ends_with("漢.tar"), "{long}");
    assert!(name(&named(&format!("a.{}", "漢".repeat(400)))).len() <= NAME_BYTES);
}
