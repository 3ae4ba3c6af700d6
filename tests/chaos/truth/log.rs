//! The log of steps and events: one JSON object a line, in two files of a bounded size.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};

/// A file has at most so much; an hour writes more, and the end is what tells.
const FILE_BYTES: usize = 64 << 20;

pub(super) struct Log {
    dir: PathBuf,
    began: Instant,
    file: BufWriter<File>,
    written: usize,
}

impl Log {
    pub(super) fn new(dir: PathBuf) -> Self {
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let file = BufWriter::new(File::create(dir.join("steps.ndjson")).unwrap());
        Self { dir, began: Instant::now(), file, written: 0 }
    }

    pub(super) fn write(&mut self, who: &str, what: &Value) {
        let at = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let line = format!("{}\n", json!({"ms": at, "who": who, "what": what}));
        if self.written + line.len() > FILE_BYTES {
            self.flush();
            let current = self.dir.join("steps.ndjson");
            std::fs::rename(&current, self.dir.join("steps.1.ndjson")).unwrap();
            self.file = BufWriter::new(File::create(current).unwrap());
            self.written = 0;
        }
        self.written += line.len();
        self.file.write_all(line.as_bytes()).unwrap();
    }

    pub(super) fn flush(&mut self) -> PathBuf {
        self.file.flush().unwrap();
        self.dir.clone()
    }
}
