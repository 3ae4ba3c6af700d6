//! Who serves this home, by the kernel's list of locks. The lock is not tried: whoever came
//! meanwhile would find it held.

use std::os::unix::fs::MetadataExt as _;

use shared::fs::read_bounded;
use shared::layout::Layout;

/// `/proc/locks` has a line of about 60 bytes for each lock of the machine.
const MAX_LOCKS_BYTES: u64 = 8 << 20;

/// The pid of the supervisor that holds the home's lock.
pub(crate) fn holder(layout: &Layout) -> Option<i32> {
    let pid = read_bounded(&layout.lock(), 4096).ok()?;
    let pid = std::str::from_utf8(&pid).ok()?.lines().next()?.trim().parse().ok()?;
    let file = std::fs::metadata(layout.lock()).ok()?;
    let locks = read_bounded("/proc/locks".as_ref(), MAX_LOCKS_BYTES).ok()?;
    let device = format!("{:02x}:{:02x}", rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    is_held(&String::from_utf8_lossy(&locks), pid, &device, file.ino()).then_some(pid)
}

/// Whether the file has a lock of flock(2) (proc(5), `/proc/locks`). The device of an overlay is
/// another one there than stat(2) says, and a lock that was inherited has the pid of its first
/// holder: one of both has to agree.
fn is_held(locks: &str, pid: i32, device: &str, inode: u64) -> bool {
    locks.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, _, by, file, ..] = fields[..] else { return false };
        let Some((on, number)) = file.rsplit_once(':') else { return false };
        number.parse() == Ok(inode) && (on == device || by.parse() == Ok(pid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_known_by_its_file_and_by_device_or_holder() {
        let locks = "1: FLOCK  ADVISORY  WRITE 77 00:2e:1234 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 78 00:2f:1234 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 79 00:2f:1234 0 EOF\n";
        assert!(is_held(locks, 77, "00:2e", 1234));
        assert!(is_held(locks, 5, "00:2e", 1234), "inherited");
        assert!(is_held(locks, 77, "fe:00", 1234), "an overlay");
        assert!(!is_held(locks, 78, "00:2f", 1234), "it waits");
        assert!(!is_held(locks, 79, "00:2f", 1234), "another kind of lock");
        assert!(!is_held(locks, 77, "00:2e", 123));
    }

    #[test]
    fn our_own_lock_is_found_in_the_kernels_list() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        shared::fs::private_dir(&layout.state()).unwrap();
        assert_eq!(holder(&layout), None);
        let own = std::process::id().cast_signed();
        std::fs::write(layout.lock(), format!("{own}\n")).unwrap();
        assert_eq!(holder(&layout), None);
        let lock = shared::fs::Lock::try_acquire(&layout.lock()).unwrap();
        assert_eq!(holder(&layout), Some(own));
        drop(lock);
        assert_eq!(holder(&layout), None);
    }
}
