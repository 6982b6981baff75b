//! Measures the path to a host without privilege: its round trip, the negotiated options, and the
//! largest packet that arrives.
//!
//! A probe is a connection of its own that carries at most one segment, or a datagram to a port
//! where nothing should listen. There are at most some twenty in all.

mod search;
mod tcp;
mod udp;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::fact::Fact;
use crate::path::{Discovery, PathMeasurement, PathMtu, ProbeMethod};

/// Time limit of the first connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections whose set-up is timed.
const ROUNDS: usize = 3;
/// Size of the smallest probe, in bytes: every host accepts it (RFC 791), and a path that loses it
/// loses everything.
const MIN_PROBE_BYTES: u32 = 576;
/// Probes per size: a packet that is lost twice is not lost by chance.
const MAX_PROBES_PER_SIZE: usize = 2;

/// The host could not be measured, as it did not answer. Check that it is up and that the port is
/// right.
#[derive(Debug, thiserror::Error)]
#[error("no answer from {address}: {source}; is it up, and the port right?")]
pub struct ProbeError {
    /// The host.
    pub address: SocketAddr,
    /// The reason.
    pub source: io::Error,
}

/// Measures the path to `address`. Takes some round trips, and up to about 15 s if large packets
/// vanish.
///
/// # Errors
/// [`ProbeError`] if the host neither accepts nor refuses a connection within 5 s.
pub fn measure(address: SocketAddr) -> Result<PathMeasurement, ProbeError> {
    let first =
        tcp::dial(address, CONNECT_TIMEOUT).map_err(|source| ProbeError { address, source })?;
    let (mut rtt, mut connection) = (first.rtt, first.connection);
    for _ in 1..ROUNDS {
        if let Ok(again) = tcp::dial(address, CONNECT_TIMEOUT) {
            rtt = rtt.min(again.rtt);
            connection = connection.or(again.connection);
        }
    }
    let negotiated = match &connection {
        Some(connection) => tcp::negotiated(connection).into(),
        None => Fact::unknown(format!("{address} refuses connections")),
    };
    let mtu = match connection {
        // If TCP's own segments are not conclusive, datagrams may be.
        Some(_) => {
            probe_by_tcp(address, rtt).or_else(|why| probe_by_udp(address, rtt).map_err(|_| why))
        }
        None => probe_by_udp(address, rtt),
    };
    drop(connection);
    Ok(PathMeasurement {
        address,
        rtt,
        negotiated,
        mtu: mtu.into(),
        quic: None,
        skew: None,
    })
}

/// Fate of a packet of a certain size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The host received it.
    Arrived,
    /// A router reported that it is too large, and the size that is not.
    TooLarge(u32),
    /// There was no answer.
    Vanished,
}

fn probe_by_tcp(address: SocketAddr, rtt: Duration) -> Result<PathMtu, String> {
    let mut first_hop = 0;
    let full = probe_twice(|| {
        let (size, fate) = tcp::probe_segment(address, None, rtt)?;
        first_hop = size;
        Ok(fate)
    })?;
    let mut ask =
        |size| probe_twice(|| tcp::probe_segment(address, Some(size), rtt).map(|(_, fate)| fate));
    conclude(full, first_hop, ProbeMethod::Tcp, &mut ask)
        .ok_or_else(|| format!("{address} sends no acknowledgements"))
}

fn probe_by_udp(address: SocketAddr, rtt: Duration) -> Result<PathMtu, String> {
    let socket = udp::Prober::open(address.ip(), rtt).map_err(|error| error.to_string())?;
    let first_hop = socket.first_hop();
    let mut ask = |size| {
        probe_twice(|| {
            socket
                .probe_datagram(size)
                .map_err(|error| error.to_string())
        })
    };
    // Unless a small one is answered, silence about large ones means nothing.
    match ask(MIN_PROBE_BYTES)? {
        Fate::Arrived => {}
        _ => {
            return Err(format!(
                "{} says nothing about datagrams to closed ports",
                address.ip()
            ));
        }
    }
    let full = ask(first_hop)?;
    conclude(full, first_hop, ProbeMethod::Udp, &mut ask)
        .ok_or_else(|| "no datagram arrives".to_owned())
}

/// Derives the path MTU from the fate of the largest packet. Returns `None` if not even a small one
/// arrives.
fn conclude(
    full: Fate,
    first_hop: u32,
    method: ProbeMethod,
    ask: &mut dyn FnMut(u32) -> Result<Fate, String>,
) -> Option<PathMtu> {
    let (bytes, discovery) = match full {
        Fate::Arrived => (first_hop, Discovery::NotNeeded),
        Fate::TooLarge(bytes) => (bytes, Discovery::Works),
        Fate::Vanished => {
            let mut arrives = |size| matches!(ask(size), Ok(Fate::Arrived));
            (
                search::largest(MIN_PROBE_BYTES, first_hop, &mut arrives)?,
                Discovery::BlackHole,
            )
        }
    };
    Some(PathMtu {
        bytes,
        first_hop,
        discovery,
        method,
    })
}

fn probe_twice(mut ask: impl FnMut() -> Result<Fate, String>) -> Result<Fate, String> {
    for _ in 1..MAX_PROBES_PER_SIZE {
        match ask()? {
            Fate::Vanished => {}
            fate => return Ok(fate),
        }
    }
    ask()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn a_listening_host_is_measured() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let measured = measure(listener.local_addr().unwrap()).unwrap();
        assert!(measured.rtt > Duration::ZERO);
        let negotiated = measured.negotiated.known().unwrap();
        assert!(negotiated.send_mss > 500 && negotiated.congestion.is_some());
        let mtu = measured.mtu.known().unwrap();
        assert_eq!(
            (mtu.discovery, mtu.method),
            (Discovery::NotNeeded, ProbeMethod::Tcp)
        );
        assert_eq!(mtu.bytes, mtu.first_hop);
    }

    #[test]
    fn a_host_that_refuses_is_measured_by_its_refusals() {
        // Bound but not listening, so that nobody else can take the port meanwhile.
        let closed = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        closed.bind(&any.into()).unwrap();
        let address = closed.local_addr().unwrap().as_socket().unwrap();
        let measured = measure(address).unwrap();
        assert!(matches!(measured.negotiated, Fact::Unknown(_)));
        assert_eq!(
            measured.mtu.known().map(|mtu| mtu.method),
            Some(ProbeMethod::Udp),
            "{:?}",
            measured.mtu
        );
    }

    #[test]
    fn an_unreachable_host_is_reported() {
        let error = measure((Ipv4Addr::BROADCAST, 9).into())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("255.255.255.255:9") && !error.contains('\n'),
            "{error}"
        );
    }

    #[test]
    fn a_loss_by_chance_is_no_black_hole() {
        let mut fates = [Fate::Vanished, Fate::Arrived].into_iter();
        assert_eq!(
            probe_twice(|| fates.next().ok_or_else(String::new)),
            Ok(Fate::Arrived)
        );
        let mut silent = |size: u32| {
            Ok(if size <= 1400 {
                Fate::Arrived
            } else {
                Fate::Vanished
            })
        };
        let found = conclude(Fate::Vanished, 1500, ProbeMethod::Tcp, &mut silent).unwrap();
        assert_eq!((found.bytes, found.discovery), (1400, Discovery::BlackHole));
        let mut dead = |_| Ok(Fate::Vanished);
        assert_eq!(
            conclude(Fate::Vanished, 1500, ProbeMethod::Tcp, &mut dead),
            None
        );
    }
}
