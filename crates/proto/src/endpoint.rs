//! Endpoint of a hop or a destination: a host and a TCP port.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use bytes::BufMut;

use crate::{
    text::printable_within,
    tlv::{FieldReader, FieldResult},
};

/// Maximum length of a host name, in bytes (RFC 1035, section 2.3.4, in its text form).
const MAX_NAME_BYTES: usize = 253;

const KIND_NAME: u8 = 0;
const KIND_IPV4: u8 = 4;
const KIND_IPV6: u8 = 6;

/// A host, by name or by address.
///
/// A name never has the form of an address, so text and bytes are equivalent (LH-OPEN-10). Use
/// [`Host::parse`] to create one; a `Name` built by hand is checked when it is encoded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A DNS name.
    Name(String),
    /// An IP address.
    Ip(IpAddr),
}

impl Host {
    /// Parses a name or an address; an IPv6 address may be in brackets.
    ///
    /// # Errors
    /// [`EndpointError::Name`] for anything else.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        if let Some(inner) = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            let ip: Ipv6Addr = inner
                .parse()
                .map_err(|_| EndpointError::Name(truncate_for_display(text)))?;
            return Ok(Self::Ip(ip.into()));
        }
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        if !is_name(text) {
            return Err(EndpointError::Name(truncate_for_display(text)));
        }
        Ok(Self::Name(text.to_owned()))
    }
}

/// A host and a TCP port other than 0. Text: `host:port`, `192.0.2.1:port` or `[2001:db8::1]:port`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The host.
    pub host: Host,
    /// The TCP port; never 0 on the wire.
    pub port: u16,
}

impl Endpoint {
    /// Returns the endpoint at `host` and `port`.
    #[must_use]
    pub const fn new(host: Host, port: u16) -> Self {
        Self { host, port }
    }

    /// Parses an endpoint; a missing port becomes `default_port`.
    ///
    /// # Errors
    /// [`EndpointError`] for an ill-formed host or port.
    pub fn parse_with_port(text: &str, default_port: u16) -> Result<Self, EndpointError> {
        let bare_v6 = text.parse::<Ipv6Addr>().is_ok();
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !bare_v6 && !port.ends_with(']') => {
                (host, read_port(text, port)?)
            }
            _ => (text, default_port),
        };
        // Without brackets, the end of an IPv6 address is ambiguous if a port follows.
        if host.contains(':') && !host.starts_with('[') && !bare_v6 {
            return Err(EndpointError::Name(truncate_for_display(text)));
        }
        Ok(Self::new(Host::parse(host)?, port))
    }

    /// Checks that this endpoint may be encoded (LH-OPEN-10).
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match &self.host {
            _ if self.port == 0 => Err("port 0"),
            Host::Name(name) if !is_name(name) => Err("an invalid host name"),
            _ => Ok(()),
        }
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        match &self.host {
            Host::Name(name) => {
                out.put_u8(KIND_NAME);
                // `check` has limited it to 253.
                out.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
                out.put_slice(name.as_bytes());
            }
            Host::Ip(IpAddr::V4(ip)) => {
                out.put_u8(KIND_IPV4);
                out.put_slice(&ip.octets());
            }
            Host::Ip(IpAddr::V6(ip)) => {
                out.put_u8(KIND_IPV6);
                out.put_slice(&ip.octets());
            }
        }
        out.put_u16(self.port);
    }

    pub(crate) fn decode(reader: &mut FieldReader<'_>) -> FieldResult<Self> {
        let host = match reader.u8()? {
            KIND_NAME => {
                let length = reader.u8()?;
                let name = std::str::from_utf8(reader.bytes(length.into())?)
                    .map_err(|_| "a host name not in ASCII")?;
                Host::Name(name.to_owned())
            }
            KIND_IPV4 => Host::Ip(IpAddr::from(reader.array::<4>()?)),
            KIND_IPV6 => Host::Ip(IpAddr::from(reader.array::<16>()?)),
            _ => return Err("an unknown kind of host"),
        };
        let endpoint = Self::new(host, reader.u16()?);
        endpoint.check()?;
        Ok(endpoint)
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self::new(Host::Ip(address.ip()), address.port())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V4(ip)) => ip.fmt(f),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        // Port 0 is never valid in text, so it marks a missing port.
        match Self::parse_with_port(text, 0)? {
            Self { port: 0, .. } => Err(EndpointError::NoPort(truncate_for_display(text))),
            endpoint => Ok(endpoint),
        }
    }
}

/// Error in the text of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The host is neither a DNS name nor an address.
    #[error(
        "\"{0}\" is not a host: write a DNS name, an IPv4 address, or an IPv6 address in brackets"
    )]
    Name(String),
    /// The port is not a number from 1 to 65535.
    #[error("\"{0}\" has an invalid port: write a number from 1 to 65535 after the last colon")]
    Port(String),
    /// The port is missing, and it has no default.
    #[error("\"{0}\" names no port: write host:port")]
    NoPort(String),
}

fn read_port(text: &str, port: &str) -> Result<u16, EndpointError> {
    // `parse` alone would accept a sign.
    match port.parse() {
        Ok(number) if number != 0 && port.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
        _ => Err(EndpointError::Port(truncate_for_display(text))),
    }
}

fn is_name(text: &str) -> bool {
    let labels = text.strip_suffix('.').unwrap_or(text);
    text.len() <= MAX_NAME_BYTES
        && text.parse::<IpAddr>().is_err()
        && labels.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        })
}

/// Truncates a text for display in an error message.
fn truncate_for_display(text: &str) -> String {
    printable_within(text.as_bytes(), 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for text in [
            "depot.example:7510",
            "192.0.2.7:1",
            "[2001:db8::1]:65535",
            "a_b-c.example.:80",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        for (text, expected) in [
            ("h", "h:7"),
            ("192.0.2.1", "192.0.2.1:7"),
            ("::1", "[::1]:7"),
            ("[::1]", "[::1]:7"),
        ] {
            assert_eq!(
                Endpoint::parse_with_port(text, 7).unwrap().to_string(),
                expected
            );
        }
    }

    #[test]
    fn ill_formed_text_is_refused() {
        let long = "a.".repeat(127) + "b:80";
        for text in [
            "", ":80", "h:", "h:0", "h:65536", "h:+80", "h", "-h:80", "a..b:80", "a b:80",
            "::1:80x", "[h]:80", &long,
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
        let blank = "h\u{3164}\u{202e}:80"
            .parse::<Endpoint>()
            .unwrap_err()
            .to_string();
        assert!(
            blank.starts_with("\"h\\u{3164}\\u{202e}\" is not a host"),
            "{blank}"
        );
        assert!(matches!(
            "h".parse::<Endpoint>(),
            Err(EndpointError::NoPort(_))
        ));
        assert!(matches!(
            "h:x".parse::<Endpoint>(),
            Err(EndpointError::Port(_))
        ));
    }
}
