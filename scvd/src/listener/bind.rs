//! The socket on disk: ours alone, mode 0600 from the first moment, and back when it vanishes.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use interprocess::local_socket::{GenericFilePath, ListenerOptions, ToFsName as _};
use interprocess::os::unix::local_socket::ListenerOptionsExt as _;
use shared::layout::Layout;
use shared::link::SocketAddress;
use tokio::net::UnixListener;
use tokio::sync::Notify;

/// Why the socket cannot be bound.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    /// Somebody listens on it who does not have the lock.
    #[error("another process listens on {path}; end it first", path = .0.display())]
    Taken(PathBuf),
    /// Something that is no socket is in the way.
    #[error("{path} is in the way and is no socket; move it", path = .0.display())]
    InTheWay(PathBuf),
    /// It does not work.
    #[error("cannot bind {path}", path = path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The bound socket.
#[derive(Debug)]
pub(crate) struct Door {
    path: PathBuf,
    bound: RefCell<Option<Bound>>,
    changed: Notify,
    /// Whether the service manager made the socket, and removes it.
    is_inherited: bool,
}

#[derive(Debug)]
struct Bound {
    listener: Rc<UnixListener>,
    /// Device and inode of its file: another one at its path is not ours.
    file: (u64, u64),
}

impl Door {
    /// Binds the home's socket. Call with the lock held: a socket that nobody listens on is what
    /// a dead supervisor left, and is replaced.
    pub(crate) fn bind(layout: &Layout) -> Result<Self, BindError> {
        let path = layout.socket();
        let bound = bind(&path)?;
        Ok(Self { path, bound: RefCell::new(Some(bound)), changed: Notify::new(), is_inherited: false })
    }

    /// Serves the socket that the service manager bound to the home's path.
    pub(crate) fn inherited(layout: &Layout, listener: StdListener) -> Result<Self, BindError> {
        let path = layout.socket();
        let failed = |source| BindError::Io { path: path.clone(), source };
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = UnixListener::from_std(listener).map_err(failed)?;
        // Where it was removed meanwhile, no file is ours, and the manager is asked to mend that.
        let bound = Bound { listener: Rc::new(listener), file: file_at(&path).unwrap_or_default() };
        Ok(Self { path, bound: RefCell::new(Some(bound)), changed: Notify::new(), is_inherited: true })
    }

    /// Serves the socket of the supervisor that we take over from.
    pub(crate) fn taken_over(layout: &Layout, listener: OwnedFd, is_inherited: bool) -> Result<Self, BindError> {
        let door = Self::inherited(layout, StdListener::from(listener))?;
        Ok(Self { is_inherited, ..door })
    }

    /// Whether the service manager made the socket.
    pub(crate) fn is_inherited(&self) -> bool {
        self.is_inherited
    }

    /// Binds it again, after its file was removed.
    pub(crate) fn bind_again(&self) -> Result<(), BindError> {
        let bound = bind(&self.path)?;
        *self.bound.borrow_mut() = Some(bound);
        self.changed.notify_one();
        Ok(())
    }

    /// Whether clients that look for it find it.
    pub(crate) fn is_at_its_path(&self) -> bool {
        self.bound.borrow().as_ref().is_some_and(|bound| file_at(&self.path) == Some(bound.file))
    }

    /// Removes the file if it is ours. Whoever has connected stays connected.
    pub(crate) fn close(&self) {
        if !self.is_inherited && self.is_at_its_path() {
            // Fails when somebody was faster, which is what is wanted.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// The listener as it is now.
    pub(crate) fn listener(&self) -> Option<Rc<UnixListener>> {
        self.bound.borrow().as_ref().map(|bound| bound.listener.clone())
    }

    /// Returns when there is another listener.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// The listener that the service manager passed, if it is bound to the home's socket. Call it
/// once, before there are other threads or descriptors.
pub(crate) fn inherited(layout: &Layout) -> Option<StdListener> {
    let mut passed = listenfd::ListenFd::from_env();
    let listeners = (0..passed.len()).filter_map(|index| passed.take_unix_listener(index).ok().flatten());
    let is_ours = |listener: &StdListener| {
        listener.local_addr().is_ok_and(|address| address.as_pathname() == Some(&layout.socket()))
    };
    // Others are closed by not being kept.
    listeners.filter(is_ours).last()
}

fn bind(path: &Path) -> Result<Bound, BindError> {
    let failed = |source| BindError::Io { path: path.to_owned(), source };
    make_room(path)?;
    // A path may be longer than a socket's address; by its directory it is not.
    let address = SocketAddress::of(path).map_err(failed)?;
    let name = address.path().to_fs_name::<GenericFilePath>().map_err(failed)?;
    let options = ListenerOptions::new().name(name).reclaim_name(false).mode(0o600);
    let listener = options.create_sync().map_err(failed)?;
    let interprocess::local_socket::Listener::UdSocket(listener) = listener;
    let listener = StdListener::from(listener);
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = UnixListener::from_std(listener).map_err(failed)?;
    let file = file_at(path).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    Ok(Bound { listener: Rc::new(listener), file })
}

/// Removes a socket that nobody listens on, and nothing else; a link is not followed.
fn make_room(path: &Path) -> Result<(), BindError> {
    let failed = |source| BindError::Io { path: path.to_owned(), source };
    let kind = match path.symlink_metadata() {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !kind.is_socket() {
        return Err(BindError::InTheWay(path.to_owned()));
    }
    let address = SocketAddress::of(path).map_err(failed)?;
    match StdStream::connect(address.path()) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Also one whose queue is full: somebody has it.
        _ => Err(BindError::Taken(path.to_owned())),
    }
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn home() -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        shared::fs::private_dir(&layout.state()).unwrap();
        (dir, layout)
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_the_new_one_is_private() {
        let (_dir, layout) = home();
        drop(StdListener::bind(layout.socket()).unwrap());
        let door = Door::bind(&layout).unwrap();
        assert_eq!(layout.socket().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(door.is_at_its_path());
        door.close();
        assert!(!layout.socket().exists());
    }

    #[tokio::test]
    async fn a_socket_that_somebody_listens_on_is_left_alone() {
        let (_dir, layout) = home();
        let live = StdListener::bind(layout.socket()).unwrap();
        assert!(matches!(Door::bind(&layout), Err(BindError::Taken(_))));
        StdStream::connect(layout.socket()).unwrap();
        drop(live);
    }

    #[tokio::test]
    async fn a_link_or_a_file_in_the_way_is_neither_followed_nor_removed() {
        let (dir, layout) = home();
        let target = dir.path().join("target");
        drop(StdListener::bind(&target).unwrap());
        std::os::unix::fs::symlink(&target, layout.socket()).unwrap();
        assert!(matches!(Door::bind(&layout), Err(BindError::InTheWay(_))));
        assert!(target.exists() && layout.socket().is_symlink());
    }

    #[tokio::test]
    async fn an_unlinked_socket_is_noticed_and_bound_again() {
        let (_dir, layout) = home();
        let door = Door::bind(&layout).unwrap();
        std::fs::remove_file(layout.socket()).unwrap();
        assert!(!door.is_at_its_path());
        door.bind_again().unwrap();
        assert!(door.is_at_its_path());
        StdStream::connect(layout.socket()).unwrap();
    }

    #[tokio::test]
    async fn a_socket_of_somebody_else_at_the_path_is_not_removed_on_the_way_out() {
        let (_dir, layout) = home();
        let door = Door::bind(&layout).unwrap();
        std::fs::remove_file(layout.socket()).unwrap();
        let _other = StdListener::bind(layout.socket()).unwrap();
        door.close();
        assert!(layout.socket().exists());
    }
}
