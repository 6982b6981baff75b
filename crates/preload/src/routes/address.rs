//! Destinations as programs pass them, and as they get them back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{sockaddr, socklen_t};

/// Maximum size of an address, in bytes: `struct sockaddr_in6`.
const MAX_ADDRESS_BYTES: usize = 28;
/// Minimum size of an IPv4 address, in bytes: `struct sockaddr_in`.
const V4_BYTES: usize = 16;
/// Minimum size of an IPv6 address, in bytes (RFC 2133, without the zone), as in the kernel.
const V6_BYTES: usize = 24;

/// An address of its socket's family, as the program passed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    bytes: [u8; MAX_ADDRESS_BYTES],
    length: u8,
}

/// Argument of `connect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// Request to disconnect (`AF_UNSPEC`).
    Nothing,
    /// Request to connect.
    To(Destination),
    /// Any other request, which is left to the kernel.
    Other,
}

impl Given {
    /// Reads the program's argument.
    ///
    /// # Safety
    /// As for `connect`: NULL, or an address with as many bytes. (The kernel would refuse an
    /// address that cannot be read; here the program ends, as it does in other functions of the C
    /// library.)
    pub unsafe fn read(address: *const sockaddr, length: socklen_t) -> Self {
        let length = usize::try_from(length).unwrap_or(0);
        if address.is_null() || length < 2 {
            return Self::Other;
        }
        let mut bytes = [0; MAX_ADDRESS_BYTES];
        let known = length.min(MAX_ADDRESS_BYTES);
        // SAFETY: the caller's promise; at most as many bytes as fit.
        unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), bytes.as_mut_ptr(), known) };
        let [low, high, ..] = bytes;
        match i32::from(u16::from_ne_bytes([low, high])) {
            libc::AF_UNSPEC => Self::Nothing,
            libc::AF_INET if length >= V4_BYTES => Self::To(Destination { bytes, length: 16 }),
            libc::AF_INET6 if length >= V6_BYTES => Self::To(Destination { bytes, length: 28 }),
            _ => Self::Other,
        }
    }
}

impl Destination {
    /// Returns the address for a socket of IPv6 or IPv4. For IPv6, an IPv4 address is mapped.
    pub fn new(address: SocketAddr, v6: bool) -> Self {
        let mut bytes = [0; MAX_ADDRESS_BYTES];
        let ip = match (address.ip(), v6) {
            (IpAddr::V4(ip), true) => IpAddr::V6(ip.to_ipv6_mapped()),
            (ip, _) => ip,
        };
        let mut put = |at: usize, value: &[u8]| {
            if let Some(room) = bytes.get_mut(at..at + value.len()) {
                room.copy_from_slice(value);
            }
        };
        put(2, &address.port().to_be_bytes());
        let (family, length) = match ip {
            IpAddr::V4(ip) => {
                put(4, &ip.octets());
                (libc::AF_INET, 16)
            }
            IpAddr::V6(ip) => {
                put(8, &ip.octets());
                (libc::AF_INET6, 28)
            }
        };
        put(0, &u16::try_from(family).unwrap_or(0).to_ne_bytes());
        Self { bytes, length }
    }

    /// Returns true if it is for an IPv6 socket.
    pub fn is_v6(&self) -> bool {
        self.length == 28
    }

    /// Returns its address, as IPv4 if that was mapped.
    pub fn ip(&self) -> IpAddr {
        let octets = |at: usize| self.bytes.get(at..);
        if self.is_v6() {
            let v6 = octets(8).and_then(|bytes| bytes.first_chunk::<16>());
            IpAddr::V6(v6.map_or(Ipv6Addr::UNSPECIFIED, |octets| Ipv6Addr::from(*octets)))
                .to_canonical()
        } else {
            let v4 = octets(4).and_then(|bytes| bytes.first_chunk::<4>());
            IpAddr::V4(v4.map_or(Ipv4Addr::UNSPECIFIED, |octets| Ipv4Addr::from(*octets)))
        }
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        let [_, _, high, low, ..] = self.bytes;
        u16::from_be_bytes([high, low])
    }

    /// Returns true if there may be a route to it: it is neither this machine, nor on the local
    /// link, nor a multicast or broadcast address.
    pub fn may_have_route(&self) -> bool {
        let ip = self.ip();
        let local = match ip {
            IpAddr::V4(ip) => ip.is_broadcast(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        !local
            && !ip.is_loopback()
            && !ip.is_unspecified()
            && !ip.is_multicast()
            && self.port() != 0
    }

    /// Writes it to the program's buffer, truncated if that is smaller, as the kernel does.
    ///
    /// # Safety
    /// As for `getpeername`: `length` is valid for reads and writes, and `address` for writes of as
    /// many bytes.
    pub unsafe fn write(&self, address: *mut sockaddr, length: *mut socklen_t) {
        let own = usize::from(self.length);
        // SAFETY: the caller's promise; at most as many bytes are written as fit.
        unsafe {
            let room = usize::try_from(*length).unwrap_or(0).min(own);
            std::ptr::copy_nonoverlapping(self.bytes.as_ptr(), address.cast::<u8>(), room);
            *length = self.length.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_address_is_written_as_given(address: SocketAddr, v6: bool, room in 0_u32..40) {
            let v6 = v6 || address.is_ipv6();
            let made = Destination::new(SocketAddr::new(address.ip(), address.port()), v6);
            prop_assert_eq!(made.ip(), address.ip().to_canonical());
            prop_assert_eq!((made.port(), made.is_v6()), (address.port(), v6));
            let (mut bytes, mut length) = ([0xff_u8; 40], room);
            // SAFETY: the buffer has 40 bytes, and the length says no more.
            unsafe { made.write(bytes.as_mut_ptr().cast(), &raw mut length) };
            prop_assert_eq!(length, if v6 { 28 } else { 16 });
            let written = room.min(length) as usize;
            prop_assert!(bytes[written..].iter().all(|byte| *byte == 0xff), "cut");
            if written == length as usize {
                // SAFETY: the bytes were written.
                let given = unsafe { Given::read(bytes.as_ptr().cast(), length) };
                prop_assert_eq!(given, Given::To(made));
            }
        }
    }

    #[test]
    fn local_destinations_have_no_route() {
        let may = |text: &str| {
            Destination::new(text.parse().unwrap(), text.contains('[')).may_have_route()
        };
        for near in [
            "127.0.0.1:80",
            "[::1]:80",
            "[::ffff:127.0.0.1]:80",
            "0.0.0.0:80",
            "[::]:80",
            "224.0.0.1:80",
            "[ff02::1]:80",
            "[fe80::1]:80",
            "255.255.255.255:80",
            "192.0.2.1:0",
        ] {
            assert!(!may(near), "{near}");
        }
        for far in [
            "192.0.2.1:80",
            "[2001:db8::1]:80",
            "[::ffff:192.0.2.1]:80",
            "10.0.0.1:1",
        ] {
            assert!(may(far), "{far}");
        }
    }
}
