//! Passing cache chunks and feature files to a trainer: `SCM_RIGHTS` beside a `Mapping` frame.

use rudder_client::trainer_protocol::{DESCRIPTORS_PER_MESSAGE, MappingSpec, ToTrainer};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Sends every mapping with its descriptor, a group a frame.
pub async fn send(stream: &UnixStream, mappings: &[(MappingSpec, Arc<OwnedFd>)]) -> io::Result<()> {
    for group in mappings.chunks(DESCRIPTORS_PER_MESSAGE) {
        let mut frame = Vec::new();
        ToTrainer::Mapping(group.iter().map(|(spec, _)| *spec).collect()).encode(&mut frame);
        let fds: Vec<BorrowedFd<'_>> = group.iter().map(|(_, fd)| fd.as_fd()).collect();
        let sent = stream.async_io(Interest::WRITABLE, || send_with(stream, &frame, &fds)).await?;
        // The descriptors went with the first byte; what the socket's buffer did not take follows plainly.
        let mut rest = &frame[sent..];
        while !rest.is_empty() {
            let sent = stream.async_io(Interest::WRITABLE, || send_with(stream, rest, &[])).await?;
            rest = &rest[sent..];
        }
    }
    Ok(())
}

fn send_with(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_MESSAGE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("more descriptors than fit one message"));
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
}
