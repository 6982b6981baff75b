//! Thin wrappers of system calls: options, addresses and errors of the program's descriptors.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

/// A value of `errno`.
pub type Errno = c_int;

/// Returns this thread's `errno`.
pub fn errno() -> Errno {
    // SAFETY: the C library keeps one errno for each thread, at an address that is valid as long as
    // the thread.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's `errno`.
pub fn set_errno(errno: Errno) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Sets `errno`, and returns -1 as a failed call of the C library does.
pub fn fail(errno: Errno) -> c_int {
    set_errno(errno);
    -1
}

/// Converts the result of a call: the number, or `errno` if it failed.
pub fn checked(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

/// Returns an option of a socket. Any bytes must be a valid value of `T`, a C structure or number.
pub fn option<T: Copy>(fd: c_int, level: c_int, name: c_int) -> Result<T, Errno> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as socklen_t;
    // SAFETY: the buffer has the given length.
    checked(unsafe {
        libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut length)
    })?;
    // SAFETY: zeros that the kernel may have overwritten; any bytes are a value of `T`.
    Ok(unsafe { value.assume_init() })
}

/// Sets an option of a socket.
pub fn set_option<T: Copy>(fd: c_int, level: c_int, name: c_int, value: &T) -> Result<(), Errno> {
    let length = size_of::<T>() as socklen_t;
    // SAFETY: the value has the given length.
    checked(unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), length) })
        .map(drop)
}

/// Returns the kernel's unique number of a socket. All its descriptors share the number, and no
/// later socket gets it. Returns `None` if `fd` is not a socket.
pub fn cookie(fd: c_int) -> Option<u64> {
    option(fd, libc::SOL_SOCKET, libc::SO_COOKIE).ok()
}

/// Returns the address family of a TCP socket, or `None` for anything else.
pub fn tcp_family(fd: c_int) -> Option<c_int> {
    let number = |name| option::<c_int>(fd, libc::SOL_SOCKET, name).ok();
    let family = number(libc::SO_DOMAIN)?;
    let is_tcp = (family == libc::AF_INET || family == libc::AF_INET6)
        && number(libc::SO_TYPE)? == libc::SOCK_STREAM
        && number(libc::SO_PROTOCOL)? == libc::IPPROTO_TCP;
    is_tcp.then_some(family)
}

/// Returns the state of a TCP socket, one of the kernel's `TCP_` numbers.
pub fn tcp_state(fd: c_int) -> Option<u8> {
    option(fd, libc::IPPROTO_TCP, libc::TCP_INFO).ok()
}

/// State of a socket that is not connected.
pub const TCP_CLOSE: u8 = 7;

/// Returns the bytes in a TCP socket's send buffer that the peer has not acknowledged.
pub fn unacknowledged(fd: c_int) -> Result<c_int, Errno> {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes one int.
    checked(unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(bytes)
}

/// Returns true if calls on the descriptor do not block.
pub fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: takes no pointer.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// Waits for events for at most `milliseconds`, regardless of signals. Returns the events found.
pub fn wait(fd: c_int, events: i16, milliseconds: c_int) -> i16 {
    let mut asked = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    loop {
        // SAFETY: one structure, as the count says.
        match unsafe { libc::poll(&raw mut asked, 1, milliseconds) } {
            0 => return 0,
            found if found > 0 => return asked.revents,
            _ if errno() == libc::EINTR => {}
            _ => return 0,
        }
    }
}

/// Disconnects a socket, so that it can connect again, and clears its pending error.
pub fn disconnect(fd: c_int) {
    let nowhere = sockaddr {
        sa_family: libc::AF_UNSPEC as u16,
        sa_data: [0; 14],
    };
    // SAFETY: the address has the length that is given.
    unsafe { libc::connect(fd, &raw const nowhere, size_of::<sockaddr>() as socklen_t) };
    let _ = option::<c_int>(fd, libc::SOL_SOCKET, libc::SO_ERROR);
}

/// An address in its C form.
pub struct RawAddress {
    storage: sockaddr_storage,
    length: socklen_t,
}

impl RawAddress {
    /// Returns the address for a socket of this family. For IPv6 sockets, an IPv4 address becomes a
    /// mapped one.
    pub fn for_family(address: SocketAddr, family: c_int) -> Self {
        match address {
            SocketAddr::V4(v4) if family == libc::AF_INET6 => Self::from(SocketAddr::V6(
                SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0),
            )),
            _ => Self::from(address),
        }
    }

    /// Returns a pointer for calls that read the address.
    pub fn as_ptr(&self) -> *const sockaddr {
        (&raw const self.storage).cast()
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> socklen_t {
        self.length
    }

    /// Returns the bytes of the address.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `length` is at most the storage's, all of which is initialised.
        unsafe {
            std::slice::from_raw_parts((&raw const self.storage).cast(), self.length as usize)
        }
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        // SAFETY: zeros are an address without family.
        let mut storage: sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
        let length = match address {
            SocketAddr::V4(v4) => {
                let raw = sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(v4.ip().octets()),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is large enough for every address, and aligned for it.
                unsafe { (&raw mut storage).cast::<sockaddr_in>().write(raw) };
                size_of::<sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let raw = sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { (&raw mut storage).cast::<sockaddr_in6>().write(raw) };
                size_of::<sockaddr_in6>()
            }
        };
        Self {
            storage,
            length: length as socklen_t,
        }
    }
}

/// Reads an IPv4 or IPv6 address. Returns `None` for another family, or if it is too short.
///
/// # Safety
/// `address` is NULL or has `length` bytes.
pub unsafe fn read_address(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    let length = length as usize;
    if address.is_null() || length < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the caller says that `address` has that many bytes; no alignment is assumed.
    match c_int::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() }) {
        libc::AF_INET if length >= size_of::<sockaddr_in>() => {
            // SAFETY: as above.
            let raw = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
        }
        libc::AF_INET6 if length >= size_of::<sockaddr_in6>() => {
            // SAFETY: as above.
            let raw = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            let port = u16::from_be(raw.sin6_port);
            Some(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Returns the IPv4 address of a mapped one; others are returned unchanged.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Returns the IPv6-mapped form of an IPv4 address.
pub fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// A call such as `getsockname`.
type NameCall = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

fn name_by(call: NameCall, fd: c_int) -> Option<SocketAddr> {
    let mut storage = MaybeUninit::<sockaddr_storage>::zeroed();
    let mut length = size_of::<sockaddr_storage>() as socklen_t;
    // SAFETY: the buffer has the given length.
    checked(unsafe { call(fd, storage.as_mut_ptr().cast(), &raw mut length) }).ok()?;
    // SAFETY: the kernel wrote that many bytes, which fit.
    unsafe { read_address(storage.as_ptr().cast(), length) }
}

/// Returns the address to which the kernel has bound a socket.
pub fn local_address(fd: c_int) -> Option<SocketAddr> {
    name_by(libc::getsockname, fd)
}

/// Returns the address to which the kernel has connected a socket.
pub fn peer_address(fd: c_int) -> Option<SocketAddr> {
    name_by(libc::getpeername, fd)
}

/// Copies bytes to a caller's buffer of `*length` bytes, and sets `*length` to their full number,
/// as `getsockname` does.
///
/// # Safety
/// `place` is NULL or has room for `*length` bytes; `length` is NULL or valid.
pub unsafe fn give(bytes: &[u8], place: *mut c_void, length: *mut socklen_t) -> Result<(), Errno> {
    if place.is_null() || length.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller says that it is valid.
    let room = unsafe { length.read() };
    if i32::try_from(room).is_err() {
        return Err(libc::EINVAL);
    }
    let count = bytes.len().min(room as usize);
    // SAFETY: the destination has that many bytes, and does not overlap the source.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), count) };
    // SAFETY: as above.
    unsafe { length.write(bytes.len() as socklen_t) };
    Ok(())
}
