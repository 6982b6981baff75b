//! The host's name servers, and their addresses for the program.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};

use crate::addresses::{DNS_PORT, RESOLVERS};

/// The host's name servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolvers {
    hosts: Vec<SocketAddr>,
    /// Text of the program's `/etc/resolv.conf`.
    pub(crate) text: String,
}

impl Resolvers {
    /// Parses `resolv.conf`. `index` returns the index of a host's interface, for addresses with a
    /// zone. Everything but the name servers is kept.
    pub(crate) fn read(text: &str, index: impl Fn(&str) -> Option<u32>) -> Self {
        let mut hosts: Vec<SocketAddr> = Vec::new();
        let mut kept = String::new();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            if words.next() != Some("nameserver") {
                kept.push_str(line);
                kept.push('\n');
            } else if let Some(address) = words.next().and_then(|word| server(word, &index))
                && hosts.len() < RESOLVERS.len()
            {
                hosts.push(address);
            }
        }
        if hosts.is_empty() {
            // The default of resolv.conf(5).
            hosts.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DNS_PORT));
        }
        for (address, _) in RESOLVERS.iter().zip(&hosts) {
            kept.push_str(&format!("nameserver {address}\n"));
        }
        Self { hosts, text: kept }
    }

    /// Returns the host's name server that has this address inside, if it is one.
    pub(crate) fn host(&self, inside: SocketAddr) -> Option<SocketAddr> {
        let place = RESOLVERS
            .iter()
            .position(|address| IpAddr::V4(*address) == inside.ip())?;
        let host = *self.hosts.get(place)?;
        (inside.port() == DNS_PORT).then_some(host)
    }
}

fn server(word: &str, index: impl Fn(&str) -> Option<u32>) -> Option<SocketAddr> {
    let Some((address, zone)) = word.split_once('%') else {
        return Some(SocketAddr::new(word.parse().ok()?, DNS_PORT));
    };
    let zone = zone.parse().ok().or_else(|| index(zone))?;
    Some(SocketAddrV6::new(address.parse().ok()?, DNS_PORT, 0, zone).into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Resolvers {
        Resolvers::read(text, |name| (name == "eth0").then_some(7))
    }

    fn host(resolvers: &Resolvers, inside: &str) -> Option<String> {
        resolvers
            .host(inside.parse().unwrap())
            .map(|address| address.to_string())
    }

    #[test]
    fn each_of_the_hosts_servers_has_an_address_inside() {
        let found = read(
            "# made by hand\nsearch example.org\nnameserver 127.0.0.53\n nameserver fe80::1%eth0\n\
             nameserver nonsense\nnameserver 2001:db8::5\nnameserver 9.9.9.9\noptions edns0\n",
        );
        assert_eq!(
            found.text,
            "# made by hand\nsearch example.org\noptions edns0\nnameserver 192.0.0.3\n\
             nameserver 192.0.0.4\nnameserver 192.0.0.5\n"
        );
        assert_eq!(
            host(&found, "192.0.0.3:53").as_deref(),
            Some("127.0.0.53:53")
        );
        assert_eq!(
            host(&found, "192.0.0.4:53").as_deref(),
            Some("[fe80::1%7]:53")
        );
        assert_eq!(
            host(&found, "192.0.0.5:53").as_deref(),
            Some("[2001:db8::5]:53")
        );
        assert_eq!(host(&found, "192.0.0.3:54"), None);
        assert_eq!(host(&found, "9.9.9.9:53"), None);
    }

    #[test]
    fn missing_name_server_defaults_to_the_host() {
        let found = read("");
        assert_eq!(found.text, "nameserver 192.0.0.3\n");
        assert_eq!(
            host(&found, "192.0.0.3:53").as_deref(),
            Some("127.0.0.1:53")
        );
        assert_eq!(host(&found, "192.0.0.4:53"), None);
    }

    proptest! {
        #[test]
        fn any_resolv_conf_gives_one_to_three_servers(text: String) {
            let found = read(&text);
            prop_assert!((1..=RESOLVERS.len()).contains(&found.hosts.len()));
        }
    }
}
