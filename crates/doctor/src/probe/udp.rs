//! Probing with datagrams to a port where nothing should listen. The host reports that (ICMP "port
//! unreachable"), which shows that the datagram arrived. A router that drops it for its size may
//! report that instead.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu, ipv6_mtu, set_ip_mtu_discover,
    set_ipv6_mtu_discover,
};

use super::Fate;

/// Port that traceroute uses as well: no service listens there.
const TRACEROUTE_PORT: u16 = 33_434;
/// Time to wait for an answer. Hosts send such answers at most once a second after the first few
/// (Linux: `icmp_ratelimit`).
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1200);

/// A socket that sends unfragmented datagrams, whatever path MTU the kernel has cached.
pub(super) struct Prober {
    socket: UdpSocket,
    headers: u32,
    first_hop: u32,
    answer_timeout: Duration,
}

impl Prober {
    pub(super) fn open(host: IpAddr, rtt: Duration) -> io::Result<Self> {
        let any: IpAddr = match host {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((host, TRACEROUTE_PORT))?;
        let (headers, first_hop) = match host {
            IpAddr::V4(_) => {
                set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
                (28, ip_mtu(&socket)?)
            }
            IpAddr::V6(_) => {
                set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?;
                (48, ipv6_mtu(&socket)?)
            }
        };
        Ok(Self {
            socket,
            headers,
            // A datagram's length is a 16-bit number.
            first_hop: first_hop.min(65_535),
            answer_timeout: ANSWER_TIMEOUT.max(4 * rtt),
        })
    }

    /// Returns the largest packet that this end would send.
    pub(super) const fn first_hop(&self) -> u32 {
        self.first_hop
    }

    /// Sends a packet of `size` bytes, and waits for its fate.
    pub(super) fn probe_datagram(&self, size: u32) -> io::Result<Fate> {
        // Discards a late answer to the previous probe.
        let _ = self.socket.take_error();
        let data = vec![0; size.saturating_sub(self.headers) as usize];
        match self.socket.send(&data) {
            Ok(_) => {}
            Err(error) => return self.said(error),
        }
        let answer_timeout = Timespec::try_from(self.answer_timeout).unwrap_or_default();
        let mut wait = [PollFd::new(&self.socket, PollFlags::empty())];
        poll(&mut wait, Some(&answer_timeout))?;
        match self.socket.take_error()? {
            Some(error) => self.said(error),
            None => Ok(Fate::Vanished),
        }
    }

    fn said(&self, error: io::Error) -> io::Result<Fate> {
        match error.kind() {
            ErrorKind::ConnectionRefused => Ok(Fate::Arrived),
            _ if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                let reported = if self.headers == 28 {
                    ip_mtu(&self.socket)?
                } else {
                    ipv6_mtu(&self.socket)?
                };
                Ok(Fate::TooLarge(reported))
            }
            _ => Err(error),
        }
    }
}
