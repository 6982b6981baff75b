//! Ports to listen on, if a firewall only admits some.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Range of TCP ports. Text: `50000-50010`, or one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// The text does not name a range of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write a port or a range of ports, such as 50000-50010, without port 0")]
pub struct PortRangeError;

impl PortRange {
    /// Returns the ports in order.
    #[must_use]
    pub const fn ports(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

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

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_printed() {
        for (text, ports) in [("50000-50002", 50000..=50002), ("7", 7..=7)] {
            let range: PortRange = text.parse().unwrap();
            assert_eq!(range.to_string(), text);
            assert_eq!(range.ports(), ports);
        }
        for bad in ["", "-", "0", "0-5", "5-4", "a", "1-70000", "1-2-3"] {
            assert_eq!(bad.parse::<PortRange>(), Err(PortRangeError), "{bad}");
        }
    }
}
