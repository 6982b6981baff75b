//! `lsl_getsockname`, `lsl_getpeername`.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use libc::{sockaddr, socklen_t};
use longhaul_ramp::{Reply, Request};

use crate::address::SockaddrLsl;
use crate::guard::quietly;
use crate::system::{
    RawAddress, errno, fail, give, local_address, peer_address, set_errno, tcp_family,
};
use crate::table::State;
use crate::{listen, ramp, settle};

/// Encodes an address in the form that is reported to a program.
pub fn reported(address: SocketAddr, name: Option<&str>, native: bool) -> Vec<u8> {
    if native {
        SockaddrLsl::of(Some(address), name).bytes().to_vec()
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
    let known = quietly(None, || own_name(fd));
    set_errno(before);
    match known {
        // SAFETY: the caller's promise is the system call's.
        Some(bytes) => match unsafe { give(&bytes, address.cast::<c_void>(), length) } {
            Ok(()) => 0,
            Err(errno) => fail(errno),
        },
        // SAFETY: as above.
        None => unsafe { libc::getsockname(fd, address, length) },
    }
}

fn own_name(fd: c_int) -> Option<Vec<u8>> {
    if let Some(at) = listen::at(fd) {
        let native = settle::known(fd, |entry| Some(entry.native)).unwrap_or(false);
        return Some(reported(at, None, native));
    }
    let (local, leads, native) = settle::known(fd, |entry| {
        Some((
            entry.local,
            entry.peer.filter(|_| entry.carried),
            entry.native,
        ))
    })?;
    if let Some(local) = local {
        return Some(reported(local, None, native));
    }
    let own = local_address(fd)?;
    // The socket is connected to the on-ramp. Reports the address it would have for its
    // destination.
    let chosen = leads
        .filter(|_| own.ip().to_canonical().is_loopback())
        .and_then(source);
    match chosen {
        Some(ip) if native => Some(reported(SocketAddr::new(ip, own.port()), None, true)),
        Some(ip) => {
            let address = SocketAddr::new(ip, own.port());
            Some(
                RawAddress::for_family(address, tcp_family(fd)?)
                    .bytes()
                    .to_vec(),
            )
        }
        None if native => Some(reported(own, None, true)),
        None => None,
    }
}

/// Returns the local address that the kernel would choose for a connection to `to`, or `None` if it
/// is unreachable. Nothing is sent: connecting a UDP socket only chooses the address.
fn source(to: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match to.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let probe = UdpSocket::bind((any, 0)).ok()?;
    probe.connect(to).ok()?;
    Some(probe.local_addr().ok()?.ip())
}

/// Known peer of a socket.
enum Peer {
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
    let known = quietly(Peer::Unknown, || peer(fd));
    set_errno(before);
    match known {
        // SAFETY: the caller's promise is the system call's.
        Peer::Is(bytes) => match unsafe { give(&bytes, address.cast::<c_void>(), length) } {
            Ok(()) => 0,
            Err(errno) => fail(errno),
        },
        Peer::NotConnected => fail(libc::ENOTCONN),
        // SAFETY: as above.
        Peer::Unknown => unsafe { libc::getpeername(fd, address, length) },
    }
}

fn peer(fd: c_int) -> Peer {
    if listen::at(fd).is_some() {
        return Peer::NotConnected;
    }
    let known = settle::known(fd, |entry| {
        Some(match entry.state() {
            State::Connecting(_) | State::Failed(_) | State::Spent => None,
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
            Peer::NotConnected
        } else {
            Peer::Unknown
        };
    };
    let Some(family) = tcp_family(fd) else {
        return Peer::Unknown;
    };
    let shaped = |address: SocketAddr, name: Option<&str>, native: bool| {
        if native {
            Peer::Is(reported(address, name, true))
        } else {
            Peer::Is(RawAddress::for_family(address, family).bytes().to_vec())
        }
    };
    match known {
        Some(None) => Peer::NotConnected,
        Some(Some((peer, name, native, carried))) if carried || native => match peer {
            Some(peer) => shaped(peer, name.as_deref(), native),
            // Connected by name alone: only the far end knows the address.
            None if native => {
                let mut lsl = SockaddrLsl::of(None, name.as_deref());
                lsl.port = real.port().to_be();
                Peer::Is(lsl.bytes().to_vec())
            }
            None => Peer::Unknown,
        },
        Some(Some(_)) => Peer::Unknown,
        // The socket may have come from another process.
        None if real.ip().to_canonical().is_loopback() => match asked(fd) {
            Some(peer) => shaped(peer, None, false),
            None => Peer::Unknown,
        },
        None => Peer::Unknown,
    }
}

/// Asks the on-ramp where a socket leads that is connected to loopback.
fn asked(fd: c_int) -> Option<SocketAddr> {
    let local = local_address(fd)?;
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    let ramp = ramp::dial(None, false).ok()?;
    let packet = ramp::ask(ramp.as_raw_fd(), &Request::Peer { local }).ok()?;
    match packet.reply() {
        Ok(Reply::Peer { address }) => Some(address),
        _ => None,
    }
}
