//! `lsl_getsockname`, `lsl_getpeername`.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use libc::{sockaddr, socklen_t};
use longhaul_ramp_protocol::{RampReply, RampRequest};

use crate::address::SockaddrLsl;
use crate::guard::catching_panics;
use crate::system::{
    RawAddress, errno, fail, local_address, peer_address, set_errno, tcp_family, write_address,
};
use crate::table::SocketState;
use crate::{listen, ramp, settle};

/// Encodes an address in the form that is reported to a program.
pub fn encode_reported(address: SocketAddr, name: Option<&str>, native: bool) -> Vec<u8> {
    if native {
        SockaddrLsl::from_parts(Some(address), name)
            .bytes()
            .to_vec()
    } else {
        RawAddress::from(address).bytes().to_vec()
    }
}

/// `getsockname(2)`.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_getsockname(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    let before = errno();
    let known = catching_panics(None, || local_name(fd));
    set_errno(before);
    match known {
        // SAFETY: the caller's promise is the system call's.
        Some(bytes) => match unsafe { write_address(&bytes, address.cast::<c_void>(), length) } {
            Ok(()) => 0,
            Err(errno) => fail(errno),
        },
        // SAFETY: as above.
        None => unsafe { libc::getsockname(fd, address, length) },
    }
}

fn local_name(fd: c_int) -> Option<Vec<u8>> {
    if let Some(at) = listen::session_address(fd) {
        let native = settle::with_known_entry(fd, |entry| Some(entry.native)).unwrap_or(false);
        return Some(encode_reported(at, None, native));
    }
    let (local, leads, native) = settle::with_known_entry(fd, |entry| {
        Some((
            entry.local,
            entry.peer.filter(|_| entry.carried),
            entry.native,
        ))
    })?;
    if let Some(local) = local {
        return Some(encode_reported(local, None, native));
    }
    let own = local_address(fd)?;
    // The socket is connected to the on-ramp. Reports the address it would have for its
    // destination.
    let chosen = leads
        .filter(|_| own.ip().to_canonical().is_loopback())
        .and_then(source_address);
    match chosen {
        Some(ip) if native => Some(encode_reported(SocketAddr::new(ip, own.port()), None, true)),
        Some(ip) => {
            let address = SocketAddr::new(ip, own.port());
            Some(
                RawAddress::for_family(address, tcp_family(fd)?)
                    .bytes()
                    .to_vec(),
            )
        }
        None if native => Some(encode_reported(own, None, true)),
        None => None,
    }
}

/// Returns the local address that the kernel would choose for a connection to `to`, or `None` if it
/// is unreachable. Nothing is sent: connecting a UDP socket only chooses the address.
fn source_address(to: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match to.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let probe = UdpSocket::bind((any, 0)).ok()?;
    probe.connect(to).ok()?;
    Some(probe.local_addr().ok()?.ip())
}

/// Known peer of a socket.
enum PeerState {
    Is(Vec<u8>),
    NotConnected,
    Unknown,
}

/// `getpeername(2)`: the destination that the program asked for, not the on-ramp.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_getpeername(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    let before = errno();
    let known = catching_panics(PeerState::Unknown, || peer(fd));
    set_errno(before);
    match known {
        PeerState::Is(bytes) => {
            // SAFETY: the caller's promise is the system call's.
            match unsafe { write_address(&bytes, address.cast::<c_void>(), length) } {
                Ok(()) => 0,
                Err(errno) => fail(errno),
            }
        }
        PeerState::NotConnected => fail(libc::ENOTCONN),
        // SAFETY: as above.
        PeerState::Unknown => unsafe { libc::getpeername(fd, address, length) },
    }
}

fn peer(fd: c_int) -> PeerState {
    if listen::session_address(fd).is_some() {
        return PeerState::NotConnected;
    }
    let known = settle::with_known_entry(fd, |entry| {
        Some(match entry.state() {
            SocketState::Connecting(_) | SocketState::Failed(_) | SocketState::Spent => None,
            _ => Some((
                entry.peer,
                entry.peer_name.clone(),
                entry.native,
                entry.carried,
            )),
        })
    });
    // The kernel decides whether it is connected.
    let Some(real) = peer_address(fd) else {
        return if matches!(known, Some(None)) {
            PeerState::NotConnected
        } else {
            PeerState::Unknown
        };
    };
    let Some(family) = tcp_family(fd) else {
        return PeerState::Unknown;
    };
    let shaped = |address: SocketAddr, name: Option<&str>, native: bool| {
        if native {
            PeerState::Is(encode_reported(address, name, true))
        } else {
            PeerState::Is(RawAddress::for_family(address, family).bytes().to_vec())
        }
    };
    match known {
        Some(None) => PeerState::NotConnected,
        Some(Some((peer, name, native, carried))) if carried || native => match peer {
            Some(peer) => shaped(peer, name.as_deref(), native),
            // Connected by name alone: only the far end knows the address.
            None if native => {
                let mut lsl = SockaddrLsl::from_parts(None, name.as_deref());
                lsl.port = real.port().to_be();
                PeerState::Is(lsl.bytes().to_vec())
            }
            None => PeerState::Unknown,
        },
        Some(Some(_)) => PeerState::Unknown,
        // The socket may have come from another process.
        None if real.ip().to_canonical().is_loopback() => match ask_onramp(fd) {
            Some(peer) => shaped(peer, None, false),
            None => PeerState::Unknown,
        },
        None => PeerState::Unknown,
    }
}

/// Asks the on-ramp where a socket leads that is connected to loopback.
fn ask_onramp(fd: c_int) -> Option<SocketAddr> {
    let local = local_address(fd)?;
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    let ramp = ramp::dial(None, false).ok()?;
    let packet = ramp::ask(ramp.as_raw_fd(), &RampRequest::Peer { local }).ok()?;
    match packet.reply() {
        Ok(RampReply::Peer { address }) => Some(address),
        _ => None,
    }
}
