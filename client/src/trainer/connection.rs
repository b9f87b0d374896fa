//! The Unix socket: whole frames in and out before a deadline, and the descriptors that come with them.

use super::{Interrupt, checked_length};
use crate::trainer_protocol::{FrameError, ToTrainer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, shutdown, socket_with,
    sockopt::set_socket_send_buffer_size,
};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

const READ_BYTES: usize = 256 << 10;
/// A few announcements of 100,000 rows.
const SEND_BYTES: usize = 2 << 20;
/// A peer that sends more descriptors than a welcome can have is broken.
const DESCRIPTORS_MAX: usize = 4096;

pub(super) struct Connection {
    socket: OwnedFd,
    /// What was read lies in `taken..filled`; behind it is room that was written once, so that it need not be again.
    buffer: Vec<u8>,
    taken: usize,
    filled: usize,
    descriptors: VecDeque<OwnedFd>,
    interrupt: Interrupt,
}

impl Connection {
    pub(super) fn open(path: &Path, interrupt: &Interrupt) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // As much of it as the kernel allows: an announcement that fits does not wait for the node to read it.
        set_socket_send_buffer_size(&socket, SEND_BYTES)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Connection {
            socket,
            buffer: vec![],
            taken: 0,
            filled: 0,
            descriptors: VecDeque::new(),
            interrupt: interrupt.clone(),
        })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Ends the connection for both sides, also while this is still held.
    pub(super) fn shut_down(&self) {
        // One that broke is shut already.
        let _ = shutdown(&self.socket, Shutdown::Both);
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

    /// The next message; `None` if there is none at the deadline.
    pub(super) fn receive(&mut self, deadline: Instant) -> io::Result<Option<Result<ToTrainer, FrameError>>> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(Some(message));
            }
            if self.read()? {
                continue;
            }
            if !self.wait(PollFlags::IN, deadline)? {
                return Ok(None);
            }
        }
    }

    fn buffered(&mut self) -> io::Result<Option<Result<ToTrainer, FrameError>>> {
        let unread = &self.buffer[self.taken..self.filled];
        let Some((field, rest)) = unread.split_first_chunk::<4>() else { return Ok(None) };
        let length = checked_length(*field)?;
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        let message = ToTrainer::decode(frame);
        self.taken += 4 + length;
        Ok(Some(message))
    }

    /// Reads what is there; `false` if nothing is.
    fn read(&mut self) -> io::Result<bool> {
        if self.taken > 0 {
            self.buffer.copy_within(self.taken..self.filled, 0);
            self.filled -= std::mem::take(&mut self.taken);
        }
        if self.buffer.len() < self.filled + READ_BYTES {
            self.buffer.resize(self.filled + READ_BYTES, 0);
        }
        match receive_into(&self.socket, &mut self.buffer[self.filled..], &mut self.descriptors) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => {
                self.filled += got;
                Ok(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until the socket is ready; `false` at the deadline.
    fn wait(&self, flags: PollFlags, deadline: Instant) -> io::Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(&self.socket, flags)];
            match poll(&mut fds, Some(&time(self.interrupt.slice(left)))) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
            if left.is_zero() {
                return Ok(false);
            }
            self.interrupt.ask()?;
        }
    }
}

/// Waits for nothing but time, at most for as long as a wait goes without a question; a signal ends it early.
pub(super) fn pause(span: Duration, interrupt: &Interrupt) -> io::Result<()> {
    let _ = poll(&mut [], Some(&time(interrupt.slice(span))));
    interrupt.ask()
}

fn time(span: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(span.subsec_nanos()),
    }
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
