//! Encoding of SOCKS: version 5 (RFC 1928) with user and password (RFC 1929), and version 4 with
//! names (4a). Pure: the bytes received so far are a message, incomplete, or wrong.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use longhaul_proto::{Endpoint, Host};
use rustix::io::Errno;

use crate::destination::Destination;

/// Maximum bytes of a client before it is answered: a SOCKS4a request with a user and a name of 255
/// bytes each.
pub(crate) const MAX_BYTES: usize = 1024;

const VERSION_5: u8 = 5;
const VERSION_4: u8 = 4;
/// Version of the user/password exchange (RFC 1929).
const LOGIN_VERSION: u8 = 1;
const CONNECT: u8 = 1;
const NO_LOGIN: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
/// Maximum length of a user, and of a name, in a SOCKS4 request, in bytes.
const MAX_TEXT: usize = 255;

/// A parsed message and its length in bytes; `None` while it is incomplete.
pub(crate) type Read<T> = Result<Option<(T, usize)>, Wrong>;

/// Error: the bytes are not SOCKS, or request something unsupported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Another protocol: no answer is possible.
    Foreign,
    /// A request that is refused with this reply.
    Refused(Reply),
}

/// First message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// Version 5, with the offered methods that are supported here.
    Five {
        /// The client offers to connect without a login.
        no_login: bool,
        /// The client offers user and password.
        user_and_password: bool,
    },
    /// Version 4, whose greeting is its request.
    Four(Destination),
}

/// Replies of version 5 (RFC 1928, section 6), each with its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reply {
    Succeeded = 0,
    Failure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    Refused = 5,
    Command = 7,
    AddressType = 8,
}

impl Reply {
    /// Returns the reply for an error.
    pub(crate) const fn of(errno: Errno) -> Self {
        match errno {
            Errno::ACCESS | Errno::PERM => Self::NotAllowed,
            Errno::NETUNREACH => Self::NetworkUnreachable,
            // There is no reply for a timeout or an unknown name; this is the nearest.
            Errno::HOSTUNREACH | Errno::TIMEDOUT => Self::HostUnreachable,
            Errno::CONNREFUSED => Self::Refused,
            _ => Self::Failure,
        }
    }

    /// Encodes the answer, with the address of the connection's own end.
    pub(crate) fn encode(self, bound: Option<SocketAddr>) -> Vec<u8> {
        let mut bytes = vec![VERSION_5, self as u8, 0];
        match bound.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))) {
            SocketAddr::V4(at) => {
                bytes.push(IPV4);
                bytes.extend(at.ip().octets());
                bytes.extend(at.port().to_be_bytes());
            }
            SocketAddr::V6(at) => {
                bytes.push(IPV6);
                bytes.extend(at.ip().octets());
                bytes.extend(at.port().to_be_bytes());
            }
        }
        bytes
    }

    /// Encodes the answer in version 4, which only distinguishes success and failure.
    pub(crate) const fn encode_4(self) -> [u8; 8] {
        let code = if matches!(self, Self::Succeeded) {
            90
        } else {
            91
        };
        [0, code, 0, 0, 0, 0, 0, 0]
    }
}

/// Returns the answer with the chosen method, and whether a login follows; `None` if the client
/// offers no suitable method.
pub(crate) const fn method(
    no_login: bool,
    user_and_password: bool,
    login_needed: bool,
) -> ([u8; 2], Option<bool>) {
    match (login_needed, no_login, user_and_password) {
        // If no login is required, one that the client offers is not requested.
        (false, true, _) => ([VERSION_5, NO_LOGIN], Some(false)),
        (_, _, true) => ([VERSION_5, USER_AND_PASSWORD], Some(true)),
        _ => ([VERSION_5, NO_METHOD], None),
    }
}

/// Returns the answer to a user and a password.
pub(crate) const fn login_answer(right: bool) -> [u8; 2] {
    [LOGIN_VERSION, if right { 0 } else { 1 }]
}

/// Parses the first message of a client.
pub(crate) fn greeting(bytes: &[u8]) -> Read<Greeting> {
    match bytes {
        [] => Ok(None),
        [VERSION_5] => Ok(None),
        [VERSION_5, count, rest @ ..] => {
            let count = usize::from(*count);
            Ok(rest.get(..count).map(|methods| {
                let greeting = Greeting::Five {
                    no_login: methods.contains(&NO_LOGIN),
                    user_and_password: methods.contains(&USER_AND_PASSWORD),
                };
                (greeting, 2 + count)
            }))
        }
        [VERSION_4, rest @ ..] => {
            let request = request_4(rest)?;
            Ok(request.map(|(destination, length)| (Greeting::Four(destination), 1 + length)))
        }
        _ => Err(Wrong::Foreign),
    }
}

/// Parses a user and a password.
pub(crate) fn login(bytes: &[u8]) -> Read<(Vec<u8>, Vec<u8>)> {
    let Some((version, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    if *version != LOGIN_VERSION {
        return Err(Wrong::Foreign);
    }
    let text = |bytes: &[u8]| {
        let (length, rest) = bytes.split_first()?;
        rest.get(..usize::from(*length)).map(<[u8]>::to_vec)
    };
    let Some(user) = text(rest) else {
        return Ok(None);
    };
    let behind = rest.get(1 + user.len()..).unwrap_or_default();
    Ok(text(behind).map(|password| {
        let length = 3 + user.len() + password.len();
        ((user, password), length)
    }))
}

/// Parses a request of version 5.
pub(crate) fn request(bytes: &[u8]) -> Read<Destination> {
    let [version, command, _, kind, rest @ ..] = bytes else {
        // A message that is already wrong is not read further.
        return match bytes {
            [] | [VERSION_5, ..] => Ok(None),
            _ => Err(Wrong::Foreign),
        };
    };
    if *version != VERSION_5 {
        return Err(Wrong::Foreign);
    }
    if *command != CONNECT {
        return Err(Wrong::Refused(Reply::Command));
    }
    let (destination, length) = match *kind {
        IPV4 => {
            let Some((ip, port)) = address(rest) else {
                return Ok(None);
            };
            (at((Ipv4Addr::from(ip), port).into()), 6)
        }
        IPV6 => {
            let Some((ip, port)) = address(rest) else {
                return Ok(None);
            };
            (at((Ipv6Addr::from(ip), port).into()), 18)
        }
        NAME => {
            let Some((length, rest)) = rest.split_first() else {
                return Ok(None);
            };
            let length = usize::from(*length);
            let (Some(name), Some(port)) = (rest.get(..length), rest.get(length..length + 2))
            else {
                return Ok(None);
            };
            (named(name, port_of(port)), 1 + length + 2)
        }
        _ => return Err(Wrong::Refused(Reply::AddressType)),
    };
    let destination = destination.ok_or(Wrong::Refused(Reply::HostUnreachable))?;
    Ok(Some((destination, 4 + length)))
}

/// Parses what follows the version in a request of version 4, and the name of 4a.
fn request_4(bytes: &[u8]) -> Read<Destination> {
    let [command, high, low, a, b, c, d, rest @ ..] = bytes else {
        return Ok(None);
    };
    if *command != CONNECT {
        return Err(Wrong::Refused(Reply::Command));
    }
    let port = u16::from_be_bytes([*high, *low]);
    let Some(user) = text(rest)? else {
        return Ok(None);
    };
    let (destination, length) = match [*a, *b, *c, *d] {
        // No host has such an address, so a name follows.
        [0, 0, 0, last] if last != 0 => {
            let Some(name) = text(rest.get(user.len() + 1..).unwrap_or_default())? else {
                return Ok(None);
            };
            (named(name, port), 7 + user.len() + 1 + name.len() + 1)
        }
        ip => (at((Ipv4Addr::from(ip), port).into()), 7 + user.len() + 1),
    };
    let destination = destination.ok_or(Wrong::Refused(Reply::HostUnreachable))?;
    Ok(Some((destination, length)))
}

/// Parses text up to a zero byte.
fn text(bytes: &[u8]) -> Result<Option<&[u8]>, Wrong> {
    match bytes.iter().position(|&byte| byte == 0) {
        Some(end) if end <= MAX_TEXT => Ok(bytes.get(..end)),
        None if bytes.len() <= MAX_TEXT => Ok(None),
        _ => Err(Wrong::Foreign),
    }
}

/// Parses an address of `N` bytes, and a port.
fn address<const N: usize>(bytes: &[u8]) -> Option<([u8; N], u16)> {
    let (ip, rest) = bytes.split_first_chunk::<N>()?;
    Some((*ip, port_of(rest.get(..2)?)))
}

fn port_of(bytes: &[u8]) -> u16 {
    bytes.try_into().map_or(0, u16::from_be_bytes)
}

fn at(address: SocketAddr) -> Option<Destination> {
    (address.port() != 0).then(|| Destination::at(address))
}

/// Parses a name, or an address in text form, which some clients send as a name.
fn named(name: &[u8], port: u16) -> Option<Destination> {
    let host = Host::parse(std::str::from_utf8(name).ok()?).ok()?;
    (port != 0).then(|| Destination::of(Endpoint::new(host, port)))
}

#[cfg(test)]
mod tests;
