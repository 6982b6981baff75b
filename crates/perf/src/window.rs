//! Fits a socket's buffers to bulk data: the receive window open at once, little waiting to be sent.

use std::{io, os::fd::AsFd};

use drs::{Action, Outcome, apply, set_receive_low_water_mark};

/// Lets `socket` offer a window of up to `bytes` from now on, without an end to the kernel's autotuning, which goes on from there.
///
/// A set-up of a few short messages leaves a window of some 64 KB, of which autotuning makes more only when more than a window
/// arrives in a round trip: with segments of 9000 bytes that can take seconds. Asking to be woken for `bytes` at once
/// (`SO_RCVLOWAT`) makes the kernel see to a buffer of that size, up to the ceiling of its autotuning (`tcp_rmem`); `SO_RCVBUF` would
/// end at `rmem_max` and switch autotuning off. The window still opens no faster than segments arrive, and a limit is no memory
/// taken.
///
/// # Errors
/// The kernel's, when this is no TCP socket.
pub(crate) fn open(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set_receive_low_water_mark(&socket, bytes)?;
    set_receive_low_water_mark(&socket, 1)
}

/// Lets at most `bytes` wait in `socket` that were not sent once (`TCP_NOTSENT_LOWAT`): more would only delay the end of a measurement
/// and blur its intervals.
///
/// # Errors
/// The kernel's, when this is no TCP socket.
pub(crate) fn limit_unsent(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    match apply(socket, Action::UnsentLimit(bytes)) {
        Outcome::Set(_) => Ok(()),
        Outcome::Refused(error) => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use rustix::net::sockopt;

    use super::*;

    #[test]
    fn the_buffer_grows_and_single_bytes_still_wake_the_reader() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let before = sockopt::socket_recv_buffer_size(&receiver).unwrap();
        open(&receiver, 1 << 20).unwrap();
        assert!(sockopt::socket_recv_buffer_size(&receiver).unwrap() > before);
        sender.write_all(&[7]).unwrap();
        let mut byte = [0];
        receiver.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [7]);
        limit_unsent(&sender, 1 << 20).unwrap();
        assert!(open(std::fs::File::open("/dev/null").unwrap(), 1).is_err());
    }
}
