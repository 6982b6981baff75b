//! Ports to listen on, if a firewall only admits some.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Range of TCP ports. Text: `50000-50010`, or one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// The text does not name a range of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write a port or a range of ports, such as 50000-50010, without port 0")]
pub struct PortRangeError;

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse().map_err(|_| PortRangeError);
        let range = Self {
            first: port(first)?,
            last: port(last)?,
        };
        match range.first {
            0 => Err(PortRangeError),
            first if first > range.last => Err(PortRangeError),
            _ => Ok(range),
        }
    }
}

impl std::fmt::Display for PortRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl PortRange {
    /// Returns the ports to try in order. Without a range this is 0, which takes a free one.
    pub(crate) fn candidates(range: Option<Self>) -> impl Iterator<Item = u16> {
        let range = range.unwrap_or(Self { first: 0, last: 0 });
        range.first..=range.last
    }
}

/// Returns every address to listen on at `port`: both families if the system has IPv6, or else
/// IPv4.
pub(crate) fn everywhere(port: u16) -> [SocketAddr; 2] {
    [
        SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port),
        SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_printed() {
        for (text, ports) in [("50000-50002", vec![50000, 50001, 50002]), ("7", vec![7])] {
            let range: PortRange = text.parse().unwrap();
            assert_eq!(range.to_string(), text);
            assert_eq!(
                PortRange::candidates(Some(range)).collect::<Vec<_>>(),
                ports
            );
        }
        for bad in ["", "-", "0", "0-5", "5-4", "a", "1-70000", "1-2-3"] {
            assert_eq!(bad.parse::<PortRange>(), Err(PortRangeError), "{bad}");
        }
        assert_eq!(PortRange::candidates(None).collect::<Vec<_>>(), [0]);
    }
}
