//! TCP sockets of this network namespace by their local ports (Linux
//! `include/uapi/linux/inet_diag.h`).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use drs::{TcpInfo, TcpState};

use crate::query::{NetlinkSocket, SOCK_DIAG, attributes, find, put};

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// Attribute of a request: a program that selects sockets (`INET_DIAG_REQ_BYTECODE`).
const BYTECODE: u16 = 1;
/// Attribute of an answer: `struct tcp_info` (`INET_DIAG_INFO`).
const INFO: u16 = 2;
/// Instructions that compare the local port (`INET_DIAG_BC_S_GE`, `INET_DIAG_BC_S_LE`).
const LOCAL_PORT_AT_LEAST: u8 = 2;
const LOCAL_PORT_AT_MOST: u8 = 3;
/// Size of a comparison: two `struct inet_diag_bc_op`.
const COMPARISON_BYTES: u16 = 8;
/// `struct inet_diag_sockid`.
const SOCKET_ID_BYTES: usize = 48;
/// `struct inet_diag_msg`.
const ANSWER_BYTES: usize = 72;
/// States of a request: all but listeners, as a set of bits.
const ALL_BUT_LISTENERS: u32 = !(1 << 10);

/// A TCP socket that is connected, connecting or closing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSocket {
    /// Local port.
    pub local_port: u16,
    /// Address of the peer; of IPv4 if it was mapped.
    pub peer: IpAddr,
    /// State of the connection.
    pub state: TcpState,
    /// Information about the connection. `None` once only the kernel waits for stray segments.
    pub info: Option<TcpInfo>,
}

/// Reader of TCP sockets.
#[derive(Debug)]
pub struct TcpSocketReader(NetlinkSocket);

impl TcpSocketReader {
    /// Opens a reader.
    ///
    /// # Errors
    /// The kernel does not report sockets (`CONFIG_INET_DIAG`), or allows no further socket.
    pub fn open() -> io::Result<Self> {
        NetlinkSocket::open(SOCK_DIAG).map(Self)
    }

    /// Returns the sockets with these local ports, except listeners.
    ///
    /// # Errors
    /// The kernel refuses or gives no answer.
    pub fn read(&mut self, ports: RangeInclusive<u16>) -> io::Result<Vec<TcpSocket>> {
        let mut sockets = Vec::new();
        for family in [AF_INET, AF_INET6] {
            let answers = self.0.dump(BY_FAMILY, &request(family, &ports))?;
            let found = answers.iter().filter_map(|(_, body)| parse(body));
            sockets.extend(found.filter(|socket| ports.contains(&socket.local_port)));
        }
        Ok(sockets)
    }
}

/// Returns a request for the sockets of an address family with these local ports.
fn request(family: u8, ports: &RangeInclusive<u16>) -> Vec<u8> {
    let mut body = vec![family, IPPROTO_TCP, 1 << (INFO - 1), 0];
    body.extend_from_slice(&ALL_BUT_LISTENERS.to_ne_bytes());
    body.extend_from_slice(&[0; SOCKET_ID_BYTES]);
    let mut program = Vec::new();
    // A comparison continues after itself if it holds. Otherwise it jumps past the end of the
    // program, which rejects the socket.
    let mut compare = |code: u8, port: u16, rest: u16| {
        let past_end = COMPARISON_BYTES + rest + 4;
        program.extend_from_slice(&[code, 8]);
        program.extend_from_slice(&past_end.to_ne_bytes());
        program.extend_from_slice(&[0, 0]);
        program.extend_from_slice(&port.to_ne_bytes());
    };
    compare(LOCAL_PORT_AT_LEAST, *ports.start(), COMPARISON_BYTES);
    compare(LOCAL_PORT_AT_MOST, *ports.end(), 0);
    put(&mut body, BYTECODE, &program);
    body
}

/// Parses an answer. Returns `None` if it is cut short.
fn parse(body: &[u8]) -> Option<TcpSocket> {
    let [family, state, ..] = *body else {
        return None;
    };
    let array = |at: usize| body.get(at..)?.first_chunk::<16>().copied();
    let peer = match family {
        AF_INET => {
            let [a, b, c, d, ..] = array(24)?;
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        AF_INET6 => IpAddr::V6(Ipv6Addr::from(array(24)?)).to_canonical(),
        _ => return None,
    };
    body.get(..ANSWER_BYTES)?;
    let attributes = attributes(body, ANSWER_BYTES);
    Some(TcpSocket {
        local_port: u16::from_be_bytes(*body.get(4..)?.first_chunk()?),
        peer,
        state: TcpState::from_number(state),
        info: find(&attributes, INFO).and_then(TcpInfo::parse),
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_are_found_by_their_local_port() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                eprintln!("left out: no {address} here");
                continue;
            };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let local = client.local_addr().unwrap();
            let mut reader = TcpSocketReader::open().unwrap();
            let found = reader.read(local.port()..=local.port()).unwrap();
            // Connections of other programs may have the same port.
            let may_be_own =
                |one: &TcpSocket| one.peer == local.ip() && one.state == TcpState::Established;
            let has_info =
                |one: &TcpSocket| one.info.is_some_and(|info| info.bytes_acked.is_some());
            let is_found = found.iter().any(|one| may_be_own(one) && has_info(one));
            assert!(is_found, "{found:?}");
            let at = listener.local_addr().unwrap().port();
            let other = reader.read(at..=at).unwrap();
            assert!(other.iter().all(|one| one.local_port == at), "{other:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(0_u8.., 0..400)) {
            let _ = parse(&bytes);
        }
    }
}
