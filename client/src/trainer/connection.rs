//! The Unix socket: whole frames in and out before a deadline, and the descriptors that come with them.

use super::checked_length;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

const READ_BYTES: usize = 256 << 10;
/// A peer that sends more descriptors than a welcome can have is broken.
const DESCRIPTORS_MAX: usize = 4096;

pub(super) struct Connection {
    socket: OwnedFd,
    received: Vec<u8>,
    /// Bytes of `received` that were handed out.
    taken: usize,
    descriptors: VecDeque<OwnedFd>,
}

impl Connection {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Connection { socket, received: vec![], taken: 0, descriptors: VecDeque::new() })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The descriptors that came with the frames received so far.
    pub(super) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        self.descriptors.drain(..).collect()
    }

    /// Sends all of it, or fails; a failed connection must not be used again.
    pub(super) fn send(&mut self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(rustix::io::Errno::AGAIN) => {
                    if !self.wait(PollFlags::OUT, deadline)? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The next frame without its length field; `None` if there is none at the deadline.
    pub(super) fn receive(&mut self, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(Some(frame));
            }
            if self.read()? {
                continue;
            }
            if !self.wait(PollFlags::IN, deadline)? {
                return Ok(None);
            }
        }
    }

    fn buffered(&mut self) -> io::Result<Option<Vec<u8>>> {
        let unread = &self.received[self.taken..];
        let Some((field, rest)) = unread.split_first_chunk::<4>() else { return Ok(None) };
        let length = checked_length(*field)?;
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        let frame = frame.to_vec();
        self.taken += 4 + length;
        if self.taken == self.received.len() {
            self.received.clear();
            self.taken = 0;
        }
        Ok(Some(frame))
    }

    /// Reads what is there; `false` if nothing is.
    fn read(&mut self) -> io::Result<bool> {
        if self.taken > 0 {
            self.received.drain(..self.taken);
            self.taken = 0;
        }
        let start = self.received.len();
        self.received.resize(start + READ_BYTES, 0);
        let result = receive_into(&self.socket, &mut self.received[start..], &mut self.descriptors);
        let got = result.as_ref().copied().unwrap_or(0);
        self.received.truncate(start + got);
        match result {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until the socket is ready; `false` at the deadline. A signal ends the wait early, so that the caller's
    /// language can handle it.
    fn wait(&self, flags: PollFlags, deadline: Instant) -> io::Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        let time_out = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = [PollFd::new(&self.socket, flags)];
        match poll(&mut fds, Some(&time_out)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits for nothing but time; a signal ends it early.
pub(super) fn pause(time: Duration) {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    let _ = poll(&mut [], Some(&time));
}

fn receive_into(socket: &OwnedFd, to: &mut [u8], descriptors: &mut VecDeque<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(to)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors"));
    }
    Ok(message.bytes)
}
