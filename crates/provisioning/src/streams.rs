//! Matching of a circuit's streams: by their addresses and, if these do not suffice, by source port
//! or mark.

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Largest differentiated services code point: six bits.
pub const MAX_DSCP: u8 = 63;

/// An address prefix, such as `10.0.0.0/8` or `2001:db8::/32`. A single address is written without
/// its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// A text that is not an address prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not an address prefix ({why}): write ADDRESS or ADDRESS/BITS, such as \
         10.1.0.0/16"
)]
pub struct InvalidPrefix {
    text: String,
    why: &'static str,
}

/// Maximum length of a text to parse. An IPv6 address with its length has at most 49 characters.
const MAX_PREFIX_TEXT_BYTES: usize = 64;

impl Prefix {
    /// Returns the prefix of a single address.
    #[must_use]
    pub const fn single(address: IpAddr) -> Self {
        Self {
            address,
            length: address_bits(address),
        }
    }

    /// Returns the first address.
    #[must_use]
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the number of bits that its addresses share.
    #[must_use]
    pub const fn length(self) -> u8 {
        self.length
    }

    /// Returns true if it contains all addresses of another prefix.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        let shift = u32::from(address_bits(self.address) - self.length);
        let alike = match (self.address, other.address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                (one.to_bits() ^ other.to_bits())
                    .checked_shr(shift)
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => {
                (one.to_bits() ^ other.to_bits())
                    .checked_shr(shift)
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        };
        alike && other.length >= self.length
    }

    /// Returns the prefixes that contain it, the widest first.
    pub fn supernets(self) -> impl Iterator<Item = Self> {
        let all = address_bits(self.address);
        (0..self.length).map(move |length| {
            let rest = u32::from(all - length);
            let address = match self.address {
                IpAddr::V4(address) => {
                    let kept = u32::MAX.checked_shl(rest).unwrap_or(0);
                    IpAddr::from(Ipv4Addr::from_bits(address.to_bits() & kept))
                }
                IpAddr::V6(address) => {
                    let kept = u128::MAX.checked_shl(rest).unwrap_or(0);
                    IpAddr::from(Ipv6Addr::from_bits(address.to_bits() & kept))
                }
            };
            Self { address, length }
        })
    }

    /// Returns true if some address is in both.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other) || other.contains(self)
    }

    /// Returns the IP version of the addresses.
    #[must_use]
    pub const fn family(self) -> IpFamily {
        match self.address {
            IpAddr::V4(_) => IpFamily::V4,
            IpAddr::V6(_) => IpFamily::V6,
        }
    }
}

const fn address_bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl FromStr for Prefix {
    type Err = InvalidPrefix;

    fn from_str(text: &str) -> Result<Self, InvalidPrefix> {
        let no = |why| InvalidPrefix {
            text: text.chars().take(MAX_PREFIX_TEXT_BYTES).collect(),
            why,
        };
        if text.len() > MAX_PREFIX_TEXT_BYTES {
            return Err(no("too long"));
        }
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| no("not an IP address"))?;
        let most = address_bits(address);
        let length = match length {
            None => most,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits
                .parse::<u8>()
                .ok()
                .filter(|length| *length <= most)
                .ok_or_else(|| no("more bits than such an address has"))?,
            Some(_) => return Err(no("not a number of bits")),
        };
        let rest = match address {
            IpAddr::V4(address) => address.to_bits().checked_shl(length.into()).unwrap_or(0) != 0,
            IpAddr::V6(address) => address.to_bits().checked_shl(length.into()).unwrap_or(0) != 0,
        };
        if rest {
            return Err(no("bits are set beyond its length"));
        }
        Ok(Self { address, length })
    }
}

impl TryFrom<String> for Prefix {
    type Error = InvalidPrefix;

    fn try_from(text: String) -> Result<Self, InvalidPrefix> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.length == address_bits(self.address) {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.length)
        }
    }
}

/// A version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A protocol with ports.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum PortProtocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl PortProtocol {
    /// Returns the protocol number (IANA, Protocol Numbers).
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// Returns the name of the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// An inclusive range of source ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourcePorts {
    /// First port, at least 1.
    pub first: u16,
    /// Last port.
    pub last: u16,
    /// Protocol of the ports.
    #[serde(default)]
    pub transport: PortProtocol,
}

/// Selector of the packets that belong to a circuit. All criteria must match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamSelector {
    /// Source addresses.
    pub from: Prefix,
    /// Destination addresses.
    pub to: Prefix,
    /// Source ports, if the circuit carries only some of the streams between the ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<SourcePorts>,
    /// Differentiated services code point (RFC 2474), if the circuit carries only packets with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// Mark that the machine's firewall or a socket (`SO_MARK`) sets on the packets. It does not
    /// leave that machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<u32>,
}

/// Fault of a stream selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SelectorFault {
    /// The ends are of different IP versions: use IPv4 or IPv6 for both.
    #[error("streams from {from} to {to} cannot be matched: both must be IPv4, or both IPv6")]
    Families {
        /// Source addresses.
        from: Prefix,
        /// Destination addresses.
        to: Prefix,
    },
    /// The port range is empty: the first port must be at least 1, and at most the last.
    #[error(
        "source ports {} to {} are not a range: the first is at least 1 and at most the last",
        .0.first, .0.last
    )]
    Ports(SourcePorts),
    /// The code point has more than six bits: use 0 to 63.
    #[error("code point {0} does not exist: use 0 to {MAX_DSCP}")]
    Dscp(u8),
    /// The mark is 0, which packets without a mark have: choose another.
    #[error("mark 0 is on every unmarked packet: use another")]
    NoMark,
}

impl StreamSelector {
    /// Returns a selector for all traffic from one address to another.
    #[must_use]
    pub const fn between(from: IpAddr, to: IpAddr) -> Self {
        Self {
            from: Prefix::single(from),
            to: Prefix::single(to),
            source_ports: None,
            dscp: None,
            mark: None,
        }
    }

    /// Returns the IP version of the packets.
    #[must_use]
    pub const fn family(&self) -> IpFamily {
        self.from.family()
    }

    /// Checks that packets can be matched.
    ///
    /// # Errors
    /// [`SelectorFault`] names the first fault.
    pub fn check(&self) -> Result<(), SelectorFault> {
        if self.from.family() != self.to.family() {
            return Err(SelectorFault::Families {
                from: self.from,
                to: self.to,
            });
        }
        match self.source_ports {
            Some(ports) if ports.first == 0 || ports.first > ports.last => {
                Err(SelectorFault::Ports(ports))
            }
            _ if self.dscp.is_some_and(|dscp| dscp > MAX_DSCP) => {
                Err(SelectorFault::Dscp(self.dscp.unwrap_or_default()))
            }
            _ if self.mark == Some(0) => Err(SelectorFault::NoMark),
            _ => Ok(()),
        }
    }
}

/// Format of the streams in the id of a part: without blanks, and different for different streams.
impl fmt::Display for StreamSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.from, self.to)?;
        if let Some(ports) = self.source_ports {
            write!(
                f,
                ",{}={}-{}",
                ports.transport.name(),
                ports.first,
                ports.last
            )?;
        }
        if let Some(dscp) = self.dscp {
            write!(f, ",dscp={dscp}")?;
        }
        if let Some(mark) = self.mark {
            write!(f, ",mark={mark:#x}")?;
        }
        Ok(())
    }
}
