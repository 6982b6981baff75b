//! Name resolution: `lsl_getaddrinfo`, and remembering what the resolver answered.

use std::ffi::{CStr, CString, c_char, c_int};
use std::net::{IpAddr, SocketAddr};
use std::ptr;

use libc::{addrinfo, hostent};

use crate::address::{AF_LSL, SockaddrLsl};
use crate::guard::{c_str, catching_panics};
use crate::system::{Errno, read_address, set_errno};
use crate::table;

unsafe extern "C" {
    fn gethostbyname(name: *const c_char) -> *mut hostent;
}

/// Returns the addresses of a resolver's answer.
///
/// # Safety
/// `found` is NULL or a list from `getaddrinfo`.
unsafe fn collect_addresses(mut found: *const addrinfo) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    // SAFETY: the caller says that it is a list, which ends with NULL.
    while let Some(one) = unsafe { found.as_ref() } {
        // SAFETY: the address has the length that is given with it.
        addresses.extend(unsafe { read_address(one.ai_addr, one.ai_addrlen) });
        found = one.ai_next;
    }
    addresses
}

/// Resolves a name for a socket of this family.
pub fn addresses(name: &str, port: u16, family: c_int) -> Result<Vec<SocketAddr>, Errno> {
    let name = CString::new(name).map_err(|_| libc::EINVAL)?;
    // SAFETY: zeros are hints without any restriction.
    let mut hints: addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_socktype = libc::SOCK_STREAM;
    hints.ai_family = if family == libc::AF_INET {
        libc::AF_INET
    } else {
        libc::AF_UNSPEC
    };
    let mut found = ptr::null_mut();
    // SAFETY: NUL-terminated and valid; the pointer for the list is valid.
    if unsafe { libc::getaddrinfo(name.as_ptr(), ptr::null(), &raw const hints, &raw mut found) }
        != 0
    {
        return Err(libc::EHOSTUNREACH);
    }
    // SAFETY: a list that was just returned; it is freed once.
    let mut addresses = unsafe { collect_addresses(found) };
    // SAFETY: as above.
    unsafe { libc::freeaddrinfo(found) };
    for address in &mut addresses {
        address.set_port(port);
    }
    Ok(addresses)
}

/// `getaddrinfo(3)`. With `AF_LSL` in the hints it returns `sockaddr_lsl` with name and address. A
/// name that does not resolve here is returned without address, for the route's far end to resolve.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    result: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: the caller says that it is NULL or valid.
    let asked = unsafe { hints.as_ref() };
    if let Some(asked) = asked.filter(|hints| hints.ai_family == AF_LSL) {
        // SAFETY: the caller's promise is passed on.
        return unsafe { lsl_list(node, service, asked, result) };
    }
    // SAFETY: the caller's promise is the function's.
    let code = unsafe { libc::getaddrinfo(node, service, hints, result) };
    if code == 0 {
        catching_panics((), || {
            // SAFETY: the function succeeded and set the list; the name is the caller's.
            let (addresses, name) = unsafe { (collect_addresses(*result), c_str(node)) };
            remember(name, addresses.into_iter().map(|address| address.ip()));
        });
    }
    code
}

fn remember(name: Option<&CStr>, addresses: impl Iterator<Item = IpAddr>) {
    if let Some(name) = name.and_then(|name| name.to_str().ok()) {
        // Collects a list first, to hold the lock briefly.
        let addresses: Vec<IpAddr> = addresses.collect();
        table::with_table(|table| {
            addresses
                .iter()
                .for_each(|ip| table.names.remember(name, *ip))
        });
    }
}

/// Element of a list that this library returns, in one allocation.
#[repr(C)]
struct Element {
    info: addrinfo,
    address: SockaddrLsl,
}

/// # Safety
/// As for the function of the C library.
unsafe fn lsl_list(
    node: *const c_char,
    service: *const c_char,
    asked: &addrinfo,
    result: *mut *mut addrinfo,
) -> c_int {
    // SAFETY: a copy of numbers; the resolver does not follow the pointers in it.
    let mut hints: addrinfo = unsafe { ptr::read(asked) };
    hints.ai_family = libc::AF_UNSPEC;
    hints.ai_socktype = libc::SOCK_STREAM;
    hints.ai_protocol = libc::IPPROTO_TCP;
    let mut found = ptr::null_mut();
    // SAFETY: the caller's strings; the pointer for the list is valid.
    let code = unsafe { libc::getaddrinfo(node, service, &raw const hints, &raw mut found) };
    // SAFETY: the caller says that it is NULL or NUL-terminated.
    let name = unsafe { c_str(node) }.and_then(|name| name.to_str().ok());
    let is_name = name.is_some_and(|name| name.parse::<IpAddr>().is_err());
    let addresses = match code {
        0 => {
            // SAFETY: a list that was just returned; it is freed once.
            let addresses = unsafe { collect_addresses(found) };
            // SAFETY: as above.
            unsafe { libc::freeaddrinfo(found) };
            addresses.into_iter().map(Some).collect()
        }
        libc::EAI_NONAME | libc::EAI_AGAIN | libc::EAI_FAIL | libc::EAI_NODATA
            if is_name && hints.ai_flags & (libc::AI_NUMERICHOST | libc::AI_PASSIVE) == 0 =>
        {
            vec![None]
        }
        code => return code,
    };
    // For a name that does not resolve here, the port comes from the service alone.
    let port = match addresses.first() {
        Some(None) => {
            hints.ai_flags = 0;
            // SAFETY: as above, without a name.
            let code = unsafe {
                libc::getaddrinfo(ptr::null(), service, &raw const hints, &raw mut found)
            };
            if service.is_null() || code != 0 {
                return libc::EAI_NONAME;
            }
            // SAFETY: as above.
            let port = unsafe { collect_addresses(found) }
                .first()
                .map_or(0, SocketAddr::port);
            // SAFETY: as above.
            unsafe { libc::freeaddrinfo(found) };
            port
        }
        _ => 0,
    };
    let made = catching_panics(None, || {
        Some(make_list(&addresses, name.filter(|_| is_name), port))
    });
    let Some(list) = made else {
        return libc::EAI_MEMORY;
    };
    // SAFETY: the caller says that a pointer may be written there.
    unsafe { result.write(list) };
    0
}

fn make_list(addresses: &[Option<SocketAddr>], name: Option<&str>, port: u16) -> *mut addrinfo {
    let mut list = ptr::null_mut();
    for address in addresses.iter().rev() {
        let mut lsl = SockaddrLsl::from_parts(*address, name);
        if address.is_none() {
            lsl.port = port.to_be();
        }
        let element = Box::leak(Box::new(Element {
            info: addrinfo {
                ai_flags: 0,
                ai_family: AF_LSL,
                ai_socktype: libc::SOCK_STREAM,
                ai_protocol: 0,
                ai_addrlen: SockaddrLsl::LENGTH,
                ai_addr: ptr::null_mut(),
                ai_canonname: ptr::null_mut(),
                ai_next: list,
            },
            address: lsl,
        }));
        element.info.ai_addr = (&raw mut element.address).cast();
        list = ptr::from_mut(element).cast();
    }
    list
}

/// `freeaddrinfo(3)`, for lists of either kind.
///
/// # Safety
/// `list` is NULL or came from `lsl_getaddrinfo` (or `getaddrinfo`), and is not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsl_freeaddrinfo(mut list: *mut addrinfo) {
    // SAFETY: the caller says that it is NULL or valid.
    if unsafe { list.as_ref() }.is_none_or(|first| first.ai_family != AF_LSL) {
        if !list.is_null() {
            // SAFETY: a list of the C library's.
            unsafe { libc::freeaddrinfo(list) };
        }
        return;
    }
    while !list.is_null() {
        // SAFETY: made by `make_list`; `info` is the first member of its elements.
        let element = unsafe { Box::from_raw(list.cast::<Element>()) };
        list = element.info.ai_next;
    }
}

/// `gethostbyname(3)`.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_gethostbyname(name: *const c_char) -> *mut hostent {
    // SAFETY: the caller's promise is the function's.
    let found = unsafe { gethostbyname(name) };
    let before = crate::system::errno();
    catching_panics((), || {
        // SAFETY: NULL, or valid until the next call.
        let Some(host) = (unsafe { found.as_ref() }) else {
            return;
        };
        let mut addresses = Vec::new();
        let mut at = host.h_addr_list;
        // SAFETY: a list of pointers that ends with NULL, each to an address of the length that is
        // given.
        while let Some(bytes) = unsafe { at.as_ref() }.filter(|bytes| !bytes.is_null()) {
            addresses.extend(match host.h_addrtype {
                // SAFETY: as above.
                libc::AF_INET => Some(IpAddr::from(unsafe { bytes.cast::<[u8; 4]>().read() })),
                // SAFETY: as above.
                libc::AF_INET6 => Some(IpAddr::from(unsafe { bytes.cast::<[u8; 16]>().read() })),
                _ => None,
            });
            at = at.wrapping_add(1);
        }
        // SAFETY: the caller's name.
        remember(unsafe { c_str(name) }, addresses.into_iter());
    });
    set_errno(before);
    found
}
