//! Preparation of a socket before its connection is opened: the SYN fixes how far its window can
//! ever open.
//!
//! The window scale (RFC 7323) is chosen when a SYN leaves, or when a listening socket answers one.
//! It is derived from the receive buffer if the program set that itself, and otherwise from the
//! largest one that autotuning and explicit settings allow. So a program that sets a small buffer
//! before it connects limits its connection to that size permanently. Giving the buffer back to
//! autotuning (`SO_BUF_LOCK`, Linux 5.15) lets the kernel choose the scale for the host's limits.
//! On a host that merely has a low ceiling, nothing is to be done here: the scale is right, and the
//! buffer is raised once the flow needs it.

use std::os::fd::BorrowedFd;

use drs::{Action, Host, Locks, Outcome, apply};
use rustix::net::sockopt;

/// A receive buffer of the program that was given back to autotuning.
pub struct Freed {
    /// Size that the program had set, in bytes as the kernel accounts it.
    pub buffer: u32,
}

/// Gives the receive buffer of an unconnected TCP socket back to autotuning, if the program set it
/// below the size that autotuning allows. Returns `None` if there was nothing to do, or the kernel
/// cannot do it.
pub fn free_the_window(socket: BorrowedFd<'_>, host: impl FnOnce() -> Host) -> Option<Freed> {
    super::account::tcp_inode(socket)?;
    if !Locks::read(socket)?.receive {
        return None;
    }
    let host = host();
    if !host.autotunes || !host.scales_windows {
        return None;
    }
    let buffer = u32::try_from(sockopt::socket_recv_buffer_size(socket).ok()?).ok()?;
    if buffer >= host.receive_autotune {
        return None;
    }
    matches!(apply(socket, Action::UnlockReceive), Outcome::Set(_)).then_some(Freed { buffer })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_small_buffer_of_the_programs_own_is_given_back_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = listener.as_fd();
        let host = Host::default;
        assert!(
            free_the_window(socket, host).is_none(),
            "nobody set anything"
        );
        sockopt::set_socket_recv_buffer_size(socket, 16_384).unwrap();
        if Locks::read(socket).is_none() {
            eprintln!("left out: this kernel has no SO_BUF_LOCK");
            return;
        }
        assert_eq!(free_the_window(socket, host).unwrap().buffer, 32_768);
        assert!(free_the_window(socket, host).is_none());
    }

    #[test]
    fn buffer_is_kept_if_freeing_it_does_not_help() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = listener.as_fd();
        sockopt::set_socket_recv_buffer_size(socket, 16_384).unwrap();
        let unscaled = Host {
            scales_windows: false,
            ..Host::default()
        };
        assert!(free_the_window(socket, || unscaled).is_none());
        let low = Host {
            receive_autotune: 16_384,
            ..Host::default()
        };
        assert!(
            free_the_window(socket, || low).is_none(),
            "autotuning would give less"
        );
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(free_the_window(udp.as_fd(), Host::default).is_none());
    }
}
