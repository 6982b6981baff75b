//! Decides which server receives a token.
//!
//! Whoever receives a token can use it wherever it is valid. So a token is sent only to hosts that
//! its audience names, or that the user named for it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use longhaul_proto::Endpoint;
use longhaul_proto::text::printable;
use serde::{Deserialize, Serialize};
use url::Url;

/// A host that may receive a token, at any port or at one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenHost {
    host: String,
    port: Option<u16>,
}

/// Text that names no host. Write HOST or HOST:PORT, as in `lh://HOST:PORT/`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no host: write HOST or HOST:PORT")]
pub struct TokenHostError(String);

impl TokenHost {
    /// Returns true if `server` is this host.
    #[must_use]
    pub fn is(&self, server: &Endpoint) -> bool {
        let host = normal(&server.host.to_string());
        self.host == host && self.port.is_none_or(|port| port == server.port)
    }
}

impl FromStr for TokenHost {
    type Err = TokenHostError;

    fn from_str(text: &str) -> Result<Self, TokenHostError> {
        let wrong = || TokenHostError(printable(text.as_bytes()));
        // Port 0 stands for any.
        let endpoint = Endpoint::parse_with_port(text, 0).map_err(|_| wrong())?;
        Ok(Self {
            host: normal(&endpoint.host.to_string()),
            port: (endpoint.port != 0).then_some(endpoint.port),
        })
    }
}

impl fmt::Display for TokenHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) if self.host.contains(':') => write!(f, "[{}]:{port}", self.host),
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

impl TryFrom<String> for TokenHost {
    type Error = TokenHostError;

    fn try_from(text: String) -> Result<Self, TokenHostError> {
        text.parse()
    }
}

impl From<TokenHost> for String {
    fn from(host: TokenHost) -> Self {
        host.to_string()
    }
}

/// Returns true if an audience names the host of `server`: as a URL, or by itself.
pub(crate) fn audience_names(audience: &str, server: &Endpoint) -> bool {
    let host = normal(&server.host.to_string());
    match Url::parse(audience) {
        Ok(url) if url.has_host() => url.host_str().is_some_and(|named| normal(named) == host),
        // `host:port` is a URL with the scheme `host`.
        _ => {
            let named = audience.parse::<TokenHost>();
            named.is_ok_and(|named| named.is(server))
        }
    }
}

/// Returns the host that an audience names, for people. A word without a dot is rather a name that
/// only the issuer knows.
pub(crate) fn audience_host(audience: &str) -> Option<String> {
    match Url::parse(audience) {
        Ok(url) if url.has_host() => url.host_str().map(normal),
        _ => {
            let named = audience.parse::<TokenHost>().ok()?;
            named.host.contains(['.', ':']).then(|| named.to_string())
        }
    }
}

/// Returns a host in the form in which hosts are compared.
fn normal(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().to_string(),
        Err(_) => host.trim_end_matches('.').to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> Endpoint {
        text.parse().unwrap()
    }

    #[test]
    fn audience_names_its_host_alone() {
        let dtn = server("dtn.example.org:7511");
        for audience in [
            "https://dtn.example.org",
            "https://DTN.example.org:8443/path",
            "lh://dtn.example.org/",
            "dtn.example.org",
            "dtn.example.org:7511",
        ] {
            assert!(audience_names(audience, &dtn), "{audience}");
        }
        for audience in [
            "",
            "ANY",
            "https://wlcg.cern.ch/jwt/v1/any",
            "https://example.org",
            "https://dtn.example.org.evil.example",
            "https://evil.example/dtn.example.org",
            "https://dtn.example.org@evil.example/",
            "dtn.example.org:7512",
            "urn:dtn.example.org",
            "dtn",
        ] {
            assert!(!audience_names(audience, &dtn), "{audience}");
        }
        assert_eq!(
            audience_host("https://a.example:1/b").as_deref(),
            Some("a.example")
        );
        assert_eq!(audience_host("a.example:1").as_deref(), Some("a.example:1"));
        assert_eq!(audience_host("ANY"), None);
        assert!(audience_names("http://[::1]:5/", &server("[::1]:7511")));
        assert!(audience_names(
            "http://127.0.0.1:5/",
            &server("127.0.0.1:9")
        ));
    }

    #[test]
    fn named_hosts_are_compared_with_their_port_if_there_is_one() {
        let host = |text: &str| text.parse::<TokenHost>().unwrap();
        assert!(host("Dtn.example").is(&server("dtn.example:1")));
        assert!(host("dtn.example:1").is(&server("dtn.example:1")));
        assert!(!host("dtn.example:1").is(&server("dtn.example:2")));
        assert!(!host("dtn.example").is(&server("a.dtn.example:1")));
        assert!(host("::1").is(&server("[::1]:1")));
        for text in [
            "dtn.example",
            "dtn.example:1",
            "[::1]:1",
            "::1",
            "192.0.2.1",
        ] {
            assert_eq!(host(&host(text).to_string()), host(text), "{text}");
        }
        for bad in ["", "a b", "a/b", "https://a", "a:b", "a:99999"] {
            assert!(bad.parse::<TokenHost>().is_err(), "{bad}");
        }
    }
}
