//! `struct sockaddr_lsl`: a destination by name or address, and the route to it.

use std::ffi::{c_char, c_int};
use std::fmt::Write;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{sa_family_t, sockaddr, socklen_t};
use longhaul_ramp_protocol::{MAX_NAME_BYTES, MAX_ROUTE_BYTES};

use crate::guard::guarded;
use crate::system::Errno;

/// `AF_LSL`: a number that no address family of Linux uses.
pub const AF_LSL: c_int = 0x4c53;

/// `LSL_ACCEPTOR`: the destination speaks the session protocol itself.
pub const ACCEPTOR: u32 = 1;
/// `LSL_CLOSED`: no connection if there is no route.
pub const CLOSED: u32 = 2;
/// `LSL_DIRECT`: no depots.
pub const DIRECT: u32 = 4;

/// `LSL_HOPS_MAX`: maximum number of hops of a route.
pub const MAX_HOPS: usize = 16;

/// `struct lsl_hop`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct LslHop {
    /// Name or address, NUL-terminated.
    pub host: [u8; 254],
    /// Port in network byte order; 0 for a depot's default port.
    pub port: u16,
    /// If not 0, depots may insert others before this one.
    pub loose: u8,
    /// Always 0.
    pub reserved: u8,
    /// The depot's key in its text form, NUL-terminated; empty to accept any.
    pub key: [u8; 60],
}

/// `struct sockaddr_lsl`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SockaddrLsl {
    /// `AF_LSL`.
    pub family: sa_family_t,
    /// Port in network byte order.
    pub port: u16,
    /// Combination of [`ACCEPTOR`], [`CLOSED`] and [`DIRECT`].
    pub flags: u32,
    /// IPv6 address, or a mapped IPv4 address; `::` if unknown.
    pub address: [u8; 16],
    /// Scope of a link-local IPv6 address.
    pub scope: u32,
    /// Number of hops.
    pub hop_count: u32,
    /// NUL-terminated name; empty if there is no name.
    pub name: [u8; 256],
    /// Depots of the route, in order.
    pub hops: [LslHop; MAX_HOPS],
}

/// A destination, parsed and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedDestination {
    /// Its address, if it is known.
    pub address: Option<SocketAddr>,
    /// Its name, if there is one.
    pub name: Option<String>,
    /// Its port.
    pub port: u16,
    /// The route in its text form.
    pub route: Option<String>,
    /// Bits of [`SockaddrLsl::flags`].
    pub flags: u32,
}

/// Returns the NUL-terminated text in a C array, or `None` if it has no NUL or is not UTF-8.
fn text(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(bytes.get(..end)?).ok()
}

/// Copies a text into a C array and pads it with at least one NUL. Returns false if it does not
/// fit.
fn copy_text(text: &str, place: &mut [u8]) -> bool {
    place.fill(0);
    if text.len() >= place.len() {
        return false;
    }
    for (place, byte) in place.iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    true
}

impl SockaddrLsl {
    /// Length that is passed to `connect` and similar calls.
    pub const LENGTH: socklen_t = size_of::<Self>() as socklen_t;

    /// Returns an address without destination, route or flags.
    pub const fn empty() -> Self {
        Self {
            family: AF_LSL as sa_family_t,
            port: 0,
            flags: 0,
            address: [0; 16],
            scope: 0,
            hop_count: 0,
            name: [0; 256],
            hops: [LslHop {
                host: [0; 254],
                port: 0,
                loose: 0,
                reserved: 0,
                key: [0; 60],
            }; MAX_HOPS],
        }
    }

    /// Returns an address with the name that resolved to it.
    pub fn from_parts(address: Option<SocketAddr>, name: Option<&str>) -> Self {
        let mut lsl = Self::empty();
        if let Some(address) = address {
            lsl.port = address.port().to_be();
            match address {
                SocketAddr::V4(v4) => lsl.address = v4.ip().to_ipv6_mapped().octets(),
                SocketAddr::V6(v6) => {
                    lsl.address = v6.ip().octets();
                    lsl.scope = v6.scope_id();
                }
            }
        }
        if let Some(name) = name {
            copy_text(name, &mut lsl.name[..=MAX_NAME_BYTES]);
        }
        lsl
    }

    /// Returns its bytes, without unused hops.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: a structure of bytes and numbers, without padding (a test compares its members'
        // sizes).
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// Reads an address that C gives; it may end after its last hop.
    ///
    /// # Safety
    /// `address` has `length` bytes.
    pub unsafe fn read(address: *const sockaddr, length: socklen_t) -> Result<Self, Errno> {
        let length = (length as usize).min(size_of::<Self>());
        if length < offset_of!(Self, hops) {
            return Err(libc::EINVAL);
        }
        let mut lsl = Self::empty();
        // SAFETY: `address` has that many bytes, which fit; any bytes are a valid value.
        unsafe {
            std::ptr::copy_nonoverlapping(address.cast::<u8>(), (&raw mut lsl).cast(), length)
        };
        let hops = (length - offset_of!(Self, hops)) / size_of::<LslHop>();
        if lsl.hop_count as usize > hops.min(MAX_HOPS) {
            return Err(libc::EINVAL);
        }
        Ok(lsl)
    }

    /// Returns its address, or `None` for `::`.
    pub fn ip(&self) -> Option<IpAddr> {
        let ip = Ipv6Addr::from(self.address);
        (!ip.is_unspecified()).then(|| IpAddr::V6(ip).to_canonical())
    }

    /// Parses it into a destination.
    ///
    /// # Errors
    /// `EINVAL` if it is ill-formed.
    pub fn destination(&self) -> Result<ParsedDestination, Errno> {
        let name = text(&self.name).ok_or(libc::EINVAL)?;
        if name.len() > MAX_NAME_BYTES {
            return Err(libc::EINVAL);
        }
        let port = u16::from_be(self.port);
        let address = self.ip().map(|ip| match ip {
            IpAddr::V4(_) => SocketAddr::new(ip, port),
            IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, self.scope).into(),
        });
        Ok(ParsedDestination {
            address,
            name: (!name.is_empty()).then(|| name.to_owned()),
            port,
            route: self.route()?,
            flags: self.flags,
        })
    }

    /// Returns the route in its text form, or `None` if the rules decide.
    fn route(&self) -> Result<Option<String>, Errno> {
        let hops = self
            .hops
            .get(..self.hop_count as usize)
            .ok_or(libc::EINVAL)?;
        if self.flags & DIRECT != 0 {
            return if hops.is_empty() {
                Ok(Some("direct".to_owned()))
            } else {
                Err(libc::EINVAL)
            };
        }
        let mut route = String::new();
        for hop in hops {
            let (host, key) = (
                text(&hop.host).ok_or(libc::EINVAL)?,
                text(&hop.key).ok_or(libc::EINVAL)?,
            );
            let is_plain = |text: &str| !text.contains([',', '@', '~', '[', ']', ' ']);
            if host.is_empty() || !is_plain(host) || !is_plain(key) {
                return Err(libc::EINVAL);
            }
            let written = write!(
                route,
                "{}{}{key}{}",
                if route.is_empty() { "" } else { "," },
                if hop.loose == 0 { "" } else { "~" },
                if key.is_empty() { "" } else { "@" },
            );
            let host_written = match (host.contains(':'), u16::from_be(hop.port)) {
                (false, 0) => write!(route, "{host}"),
                (false, port) => write!(route, "{host}:{port}"),
                (true, 0) => write!(route, "[{host}]"),
                (true, port) => write!(route, "[{host}]:{port}"),
            };
            written.and(host_written).map_err(|_| libc::EINVAL)?;
        }
        if route.len() > MAX_ROUTE_BYTES {
            return Err(libc::EINVAL);
        }
        Ok((!route.is_empty()).then_some(route))
    }

    /// Sets the hops from a route in its text form.
    fn set_route(&mut self, route: &str) -> Result<(), Errno> {
        self.flags &= !DIRECT;
        self.hop_count = 0;
        match route {
            "" => return Ok(()),
            "direct" => {
                self.flags |= DIRECT;
                return Ok(());
            }
            _ => {}
        }
        let count = route.split(',').count();
        if count > MAX_HOPS {
            return Err(libc::EINVAL);
        }
        for (text, hop) in route.split(',').zip(&mut self.hops) {
            read_hop(text, hop).ok_or(libc::EINVAL)?;
        }
        self.hop_count = u32::try_from(count).map_err(|_| libc::EINVAL)?;
        Ok(())
    }
}

/// Parses `[~][key@]host[:port]`.
fn read_hop(text: &str, hop: &mut LslHop) -> Option<()> {
    let (loose, text) = match text.strip_prefix('~') {
        Some(rest) => (1, rest),
        None => (0, text),
    };
    let (key, endpoint) = text.split_once('@').unwrap_or(("", text));
    let (host, port) = match endpoint.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return None,
            }
        }
        None => match endpoint.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (endpoint, None),
        },
    };
    let port: u16 = match port {
        Some(port) => port.parse().ok().filter(|port| *port != 0)?,
        None => 0,
    };
    if host.is_empty() || !copy_text(host, &mut hop.host) || !copy_text(key, &mut hop.key) {
        return None;
    }
    (hop.port, hop.loose, hop.reserved) = (port.to_be(), loose, 0);
    Some(())
}

/// `lsl_set_route`: sets the hops of an address from a route in its text form.
///
/// # Safety
/// `address` is NULL or valid; `route` is NULL or NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_set_route(address: *mut SockaddrLsl, route: *const c_char) -> c_int {
    guarded(|| {
        // SAFETY: the caller says that it is NULL or valid.
        let address = unsafe { address.as_mut() }.ok_or(libc::EFAULT)?;
        // SAFETY: the caller says that it is NULL or NUL-terminated.
        let route = unsafe { crate::guard::c_str(route) }.ok_or(libc::EFAULT)?;
        let mut changed = *address;
        changed.set_route(route.to_str().map_err(|_| libc::EINVAL)?)?;
        *address = changed;
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use longhaul_proto::{PublicKey, Route};

    use super::*;

    #[test]
    fn there_is_no_padding() {
        assert_eq!(size_of::<LslHop>(), 254 + 2 + 1 + 1 + 60);
        assert_eq!(
            size_of::<SockaddrLsl>(),
            2 + 2 + 4 + 16 + 4 + 4 + 256 + 16 * size_of::<LslHop>()
        );
    }

    #[test]
    fn a_route_is_what_the_protocol_reads() {
        let key = PublicKey::from_bytes([3; 32]);
        for text in [
            "h1".to_owned(),
            format!("h1,~192.0.2.1:99,[::1],~{key}@h2:7,{key}@[2001:db8::1]:9"),
            vec!["h"; 16].join(","),
        ] {
            let mut lsl = SockaddrLsl::empty();
            lsl.set_route(&text).unwrap();
            let route = lsl.destination().unwrap().route.unwrap();
            assert_eq!(route, text);
            let read: Route = route.parse().unwrap();
            assert_eq!(read.hops().len(), lsl.hop_count as usize);
        }
    }

    #[test]
    fn direct_is_a_route_too() {
        let mut lsl = SockaddrLsl::empty();
        assert_eq!(lsl.destination().unwrap().route, None);
        lsl.set_route("direct").unwrap();
        assert_eq!(lsl.destination().unwrap().route.as_deref(), Some("direct"));
        lsl.set_route("h").unwrap();
        assert_eq!(lsl.destination().unwrap().route.as_deref(), Some("h"));
        lsl.set_route("").unwrap();
        assert_eq!(lsl.destination().unwrap().route, None);
    }

    #[test]
    fn ill_formed_routes_are_refused() {
        let long = "h".repeat(254);
        for text in [
            "h,",
            ",",
            "h:",
            "h:0",
            "h:70000",
            "[::1",
            "[::1]x",
            "@h:9:9",
            "~",
            &long,
            &vec!["h"; 17].join(","),
        ] {
            assert_eq!(
                SockaddrLsl::empty().set_route(text),
                Err(libc::EINVAL),
                "{text}"
            );
        }
        let mut lsl = SockaddrLsl::empty();
        lsl.hop_count = 1;
        assert_eq!(lsl.destination(), Err(libc::EINVAL), "a hop without a host");
        lsl.hops[0].host = [b'h'; 254];
        assert_eq!(
            lsl.destination(),
            Err(libc::EINVAL),
            "a host without an end"
        );
        lsl.hop_count = 17;
        assert_eq!(lsl.destination(), Err(libc::EINVAL));
        lsl.hop_count = 0;
        lsl.name = [b'n'; 256];
        assert_eq!(
            lsl.destination(),
            Err(libc::EINVAL),
            "a name without an end"
        );
    }

    #[test]
    fn addresses_are_reported_as_they_were_given() {
        for text in ["192.0.2.1:9", "[2001:db8::1]:99"] {
            let address: SocketAddr = text.parse().unwrap();
            let lsl = SockaddrLsl::from_parts(Some(address), Some("n.example"));
            let read = lsl.destination().unwrap();
            assert_eq!(
                (read.address, read.name.as_deref()),
                (Some(address), Some("n.example"))
            );
        }
        assert_eq!(
            SockaddrLsl::from_parts(None, None)
                .destination()
                .unwrap()
                .address,
            None
        );
    }

    #[test]
    fn an_address_may_end_behind_its_hops() {
        let mut lsl = SockaddrLsl::from_parts("192.0.2.1:9".parse().ok(), None);
        lsl.set_route("a,b").unwrap();
        let raw = (&raw const lsl).cast();
        let base = offset_of!(SockaddrLsl, hops);
        let read = |length: usize| {
            // SAFETY: at most as long as the structure.
            unsafe { SockaddrLsl::read(raw, length as socklen_t) }.and_then(|lsl| lsl.destination())
        };
        let whole = lsl.destination();
        assert_eq!(read(size_of::<SockaddrLsl>()), whole);
        assert_eq!(read(base + 2 * size_of::<LslHop>()), whole);
        assert_eq!(read(base + size_of::<LslHop>()), Err(libc::EINVAL));
        assert_eq!(read(base - 1), Err(libc::EINVAL));
    }
}
