//! Rules that name hosts and their port, such as those of next hops.

use std::net::SocketAddr;

use longhaul_proto::{Endpoint, Host};

use crate::{HostPattern, OwnAddresses};

/// Hosts that match a pattern, at one port or, if that is `None`, at any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    /// The hosts.
    pub host: HostPattern,
    /// Their port.
    pub port: Option<u16>,
}

impl HostRule {
    /// Parses `PATTERN`, `PATTERN:PORT` or `PATTERN:*`. A missing port becomes `default_port`.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn parse_with_port(text: &str, default_port: u16) -> Result<Self, String> {
        let bare_v6 = text.parse::<std::net::Ipv6Addr>().is_ok()
            || (text.contains("::") && !text.contains(']'));
        let (host, port) = match text.rsplit_once(':') {
            Some((host, "*")) => (host, None),
            Some((host, port)) if !bare_v6 && !port.contains(']') => {
                let problem = || format!("{text:?} has an invalid port: write 1 to 65535, or *");
                (host, Some(parse_port(port).ok_or_else(problem)?))
            }
            _ => (text, Some(default_port)),
        };
        let host = host
            .strip_prefix('[')
            .and_then(|inner| inner.strip_suffix(']'))
            .unwrap_or(host);
        Ok(Self {
            host: host.parse()?,
            port,
        })
    }

    /// Returns true if this rule could permit a connection to `endpoint`, before its name is
    /// resolved.
    #[must_use]
    pub fn might_permit(&self, endpoint: &Endpoint, own: &OwnAddresses) -> bool {
        self.is_for_port(endpoint.port) && self.host.might_grant(&endpoint.host, own)
    }

    /// Returns true if a connection to `endpoint` may go to `address`, to which its host was
    /// resolved ([`HostPattern::grants`]).
    #[must_use]
    pub fn permits(&self, endpoint: &Endpoint, address: SocketAddr, own: &OwnAddresses) -> bool {
        let name = match &endpoint.host {
            Host::Name(name) => Some(name.as_str()),
            Host::Ip(_) => None,
        };
        self.is_for_port(address.port()) && self.host.grants(address.ip(), name, own)
    }

    fn is_for_port(&self, port: u16) -> bool {
        self.port.is_none_or(|only| only == port)
    }
}

/// Parses a port number other than 0. `parse` alone would accept a sign.
pub(crate) fn parse_port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> HostRule {
        HostRule::parse_with_port(text, 7511).unwrap()
    }

    #[test]
    fn local_addresses_need_a_rule_of_their_own() {
        let own: OwnAddresses = ["203.0.114.7".parse().unwrap()].into_iter().collect();
        let permits = |text: &str, server: &str, address: &str| {
            let server: Endpoint = server.parse().unwrap();
            let rule = rule(text);
            let address: SocketAddr = address.parse().unwrap();
            rule.might_permit(&server, &own) && rule.permits(&server, address, &own)
        };
        for (text, server, address, expected) in [
            ("*", "a.example:7511", "20.0.0.1:7511", true),
            ("*", "a.example:7511", "127.0.0.1:7511", false),
            ("*", "a.example:7511", "10.0.0.1:7511", false),
            ("*", "a.example:7511", "203.0.114.7:7511", false),
            ("*", "a.example:22", "20.0.0.1:22", false),
            ("*:*", "a.example:22", "20.0.0.1:22", true),
            ("0.0.0.0/0", "127.0.0.1:7511", "127.0.0.1:7511", false),
            ("0.0.0.0/0", "203.0.114.7:7511", "203.0.114.7:7511", false),
            ("0.0.0.0/0", "a.example:7511", "127.0.0.1:7511", false),
            ("0.0.0.0/0", "10.0.0.1:7511", "10.0.0.1:7511", true),
            ("127.0.0.1:99", "127.0.0.1:99", "127.0.0.1:99", true),
            ("[::1]:99", "[::1]:99", "[::1]:99", true),
            ("b.example", "a.example:7511", "20.0.0.1:7511", false),
        ] {
            assert_eq!(
                permits(text, server, address),
                expected,
                "{text} {server} {address}"
            );
        }
    }

    #[test]
    fn ports_are_checked() {
        assert_eq!(rule("h.example").port, Some(7511));
        assert_eq!(rule("2001:db8::1").port, Some(7511));
        assert_eq!(rule("[2001:db8::1]:*").port, None);
        for odd in ["h:0", "h:+1", "h:65536", "h:x", ""] {
            assert!(HostRule::parse_with_port(odd, 7511).is_err(), "{odd}");
        }
    }
}
