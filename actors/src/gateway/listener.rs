//! The trainers' socket file: a stale one is replaced, a live one is respected, ours is removed when we go.

use crate::mailbox::Mailbox;
use rudder_messages::GatewayMessage;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a socket's path at most (the kernel's limit, less the final zero).
pub const PATH_BYTES_MAX: usize = 107;

/// Why trainers cannot connect.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error(
        "the trainers' socket {} has a path of {} bytes, and the kernel takes {PATH_BYTES_MAX}: choose a shorter `trainer_socket`",
        path.display(), path.as_os_str().len()
    )]
    TooLong { path: PathBuf },
    #[error("a live process already serves trainers at {}: stop it, or choose another `trainer_socket`", path.display())]
    InUse { path: PathBuf },
    #[error("{} exists and is no socket: remove it, or choose another `trainer_socket`", path.display())]
    NotASocket { path: PathBuf },
    #[error("cannot {what} the trainers' socket {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

/// A bound socket file. Dropping it removes the file, if it is still ours.
#[derive(Debug)]
pub struct TrainerSocket {
    listener: UnixListener,
    path: PathBuf,
    inode: (u64, u64),
}

impl TrainerSocket {
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let owned = || path.to_owned();
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(SocketError::TooLong { path: owned() });
        }
        let failed = |what| move |source| SocketError::Io { what, path: owned(), source };
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(failed("make the directory of"))?;
        }
        clear_stale(path)?;
        let listener = UnixListener::bind(path).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => SocketError::InUse { path: owned() },
            _ => SocketError::Io { what: "bind", path: owned(), source },
        })?;
        listener.set_nonblocking(true).map_err(failed("prepare"))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(failed("protect"))?;
        let metadata = std::fs::symlink_metadata(path).map_err(failed("inspect"))?;
        Ok(TrainerSocket { listener, path: owned(), inode: (metadata.dev(), metadata.ino()) })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The listener for a task; the file stays with `self`.
    pub fn listener(&self) -> io::Result<tokio::net::UnixListener> {
        tokio::net::UnixListener::from_std(self.listener.try_clone()?)
    }
}

impl Drop for TrainerSocket {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.inode);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the trainers' socket file could not be removed");
        }
    }
}

/// Removes a socket file behind which nobody listens.
fn clear_stale(path: &Path) -> Result<(), SocketError> {
    let failed = |what, source| SocketError::Io { what, path: path.to_owned(), source };
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("inspect", error)),
    };
    if !metadata.file_type().is_socket() {
        return Err(SocketError::NotASocket { path: path.to_owned() });
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(SocketError::InUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|source| failed("remove the stale file of", source))
        }
        Err(error) => Err(failed("ask who listens at", error)),
    }
}

/// Takes connections in until the task is aborted.
pub async fn accept(listener: tokio::net::UnixListener, gateway: Mailbox<GatewayMessage>) {
    loop {
        let accepted = listener.accept().await.and_then(|(stream, _)| stream.into_std());
        match accepted {
            Ok(stream) => gateway.send(GatewayMessage::Accepted(OwnedFd::from(stream))),
            Err(error) => {
                // Out of descriptors, most likely: a pause, so that those who leave can give theirs back.
                tracing::warn!(%error, "a trainer's connection could not be accepted");
                let pause = tokio::time::Instant::now() + Duration::from_millis(100);
                tokio::time::sleep_until(pause).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_file_is_replaced_a_live_one_respected_and_ours_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/trainers.sock");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a dead process leaves its file");
        let socket = TrainerSocket::bind(&path).unwrap();
        assert!(matches!(TrainerSocket::bind(&path), Err(SocketError::InUse { .. })));
        assert!(path.exists());
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(TrainerSocket::bind(&path), Err(SocketError::NotASocket { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        let long = directory.path().join("x".repeat(200));
        assert!(matches!(TrainerSocket::bind(&long), Err(SocketError::TooLong { .. })));
    }

    #[test]
    fn somebody_elses_file_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let first = TrainerSocket::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = TrainerSocket::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
}
