//! Somebody swaps directories and files for symlinks to outside while the tools work.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use super::super::read::Read;
use super::super::{CallContext, Progress};
use super::*;

/// Calls of a kind at least; more while one of the two outcomes is still missing.
const READS: usize = 4_000;
const WRITES: usize = 300;

/// Both outcomes come in milliseconds, unless a busy machine lets one of the two threads wait.
const BOTH_WITHIN: Duration = Duration::from_secs(30);

/// Exchanges two names in a tight loop until it is stopped.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Swapper {
    fn start(a: PathBuf, b: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut swaps = 0_u32;
            while !until.load(Ordering::Relaxed) {
                renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
                swaps = swaps.wrapping_add(1);
                // Out of step with whatever the other side does.
                for _ in 0..swaps.wrapping_mul(7919) % 4001 {
                    std::hint::spin_loop();
                }
            }
        });
        Self { stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

struct Case {
    _dir: tempfile::TempDir,
    outside: PathBuf,
    inside: PathBuf,
    read: Read,
    write: Write,
}

/// `inside/d/file` and `outside/file`, with `inside/d.link` leading to `outside`, and
/// `inside/d/file.link` to `outside/file`, both by a relative path.
fn case() -> Case {
    let dir = tempfile::tempdir().unwrap();
    let (outside, inside) = (dir.path().join("outside"), dir.path().join("inside"));
    std::fs::create_dir_all(inside.join("d")).unwrap();
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(inside.join("d/file"), "inside").unwrap();
    std::fs::write(outside.join("file"), "outside").unwrap();
    std::os::unix::fs::symlink("../outside", inside.join("d.link")).unwrap();
    std::os::unix::fs::symlink("../../outside/file", inside.join("d/file.link")).unwrap();
    let workspace = Rc::new(Workspace::open(&inside).unwrap());
    let (read, write) = (Read::new(Rc::clone(&workspace), 100, 100), Write::new(workspace, 100));
    Case { _dir: dir, outside, inside, read, write }
}

async fn run(tool: &dyn Tool, arguments: Value) -> Result<Output, ToolError> {
    let context =
        CallContext { cancel: CancellationToken::new(), progress: Progress::new(tokio::sync::mpsc::channel(1).0) };
    (tool.prepare(arguments)?.run)(context).await
}

impl Case {
    async fn read_on(&self, path: &str) {
        let mut seen = Seen::new();
        while seen.more(READS) {
            let result = run(&self.read, json!({"path": path})).await;
            if let Ok(output) = &result {
                assert!(output.text.contains("inside"), "{}", output.text);
            }
            seen.count(&result);
        }
        seen.both();
    }

    async fn write_on(&self, path: impl Fn(usize) -> String, mode: &str) {
        let mut seen = Seen::new();
        while seen.more(WRITES) {
            let path = path(seen.done + seen.refused);
            seen.count(&run(&self.write, json!({"path": path, "content": "inside", "mode": mode})).await);
        }
        seen.both();
    }

    fn nothing_happened_outside(&self) {
        assert_eq!(tree(&self.outside), [self.outside.join("file")]);
        assert_eq!(std::fs::read_to_string(self.outside.join("file")).unwrap(), "outside");
    }

    fn no_temporary_file_is_left(&self) {
        let left: Vec<_> =
            tree(&self.inside).into_iter().filter(|path| path.to_string_lossy().contains(".scv-")).collect();
        assert_eq!(left, Vec::<PathBuf>::new());
    }
}

#[derive(Debug)]
struct Seen {
    done: usize,
    refused: usize,
    since: Instant,
}

impl Seen {
    fn new() -> Self {
        Self { done: 0, refused: 0, since: Instant::now() }
    }

    fn more(&self, calls: usize) -> bool {
        let is_one_missing = self.done == 0 || self.refused == 0;
        self.done + self.refused < calls || is_one_missing && self.since.elapsed() < BOTH_WITHIN
    }

    fn count(&mut self, result: &Result<Output, ToolError>) {
        match result {
            Ok(_) => self.done += 1,
            Err(_) => self.refused += 1,
        }
    }
    /// Without both outcomes the race did not take place.
    fn both(&self) {
        assert!(self.done > 0 && self.refused > 0, "{self:?}");
    }
}

fn tree(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(tree(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

#[tokio::test]
async fn a_directory_swapped_for_a_symlink_lets_nothing_out_or_in() {
    let case = case();
    let swapper = Swapper::start(case.inside.join("d"), case.inside.join("d.link"));
    case.read_on("d/file").await;
    case.write_on(|_| "d/file".to_owned(), "replace").await;
    case.write_on(|n| format!("d/new-{n}"), "create").await;
    case.write_on(|n| format!("d/sub-{n}/new"), "create").await;
    swapper.stop();
    case.nothing_happened_outside();
    case.no_temporary_file_is_left();
}

#[tokio::test]
async fn a_file_swapped_for_a_symlink_lets_nothing_out_or_in() {
    let case = case();
    let swapper = Swapper::start(case.inside.join("d/file"), case.inside.join("d/file.link"));
    case.read_on("d/file").await;
    // Both outcomes are not to be had for sure: a link that comes between the last look and the
    // rename is itself replaced, and then there is none any more.
    for _ in 0..WRITES {
        let _ = run(&case.write, json!({"path": "d/file", "content": "inside", "mode": "replace"})).await;
    }
    swapper.stop();
    case.nothing_happened_outside();
    case.no_temporary_file_is_left();
}
