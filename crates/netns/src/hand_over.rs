//! Message of the child to its parent before it becomes the program: the device, or what failed.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::error::{IsolateError, SetupStep};

/// First byte of a message with a device.
const READY: u8 = 0;

/// Returns both ends: the parent's and the child's.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// Hands over the device.
pub(crate) fn give(parent: &OwnedFd, device: &OwnedFd) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut room);
    let descriptors = [device.as_fd()];
    with.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(
        parent,
        &[IoSlice::new(&[READY])],
        &mut with,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Reports what failed.
pub(crate) fn fail(parent: &OwnedFd, step: SetupStep, error: &io::Error) {
    let [a, b, c, d] = error.raw_os_error().unwrap_or(0).to_ne_bytes();
    let _ = rustix::net::send(parent, &[step as u8, a, b, c, d], SendFlags::NOSIGNAL);
}

/// Returns the message of a child that has ended or become the program, or `None` if there was
/// none.
pub(crate) fn take(child: &OwnedFd) -> Option<Result<OwnedFd, IsolateError>> {
    let mut bytes = [0; 5];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = RecvAncillaryBuffer::new(&mut room);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(child, &mut [IoSliceMut::new(&mut bytes)], &mut with, flags).ok()?;
    let [number, a, b, c, d] = bytes;
    if let Some(step) = SetupStep::from_repr(number) {
        let error = io::Error::from_raw_os_error(i32::from_ne_bytes([a, b, c, d]));
        return Some(Err(IsolateError::from_step(step, error)));
    }
    with.drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        })
        .next()
        .map(Ok)
}
