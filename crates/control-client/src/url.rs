//! Name of a service: `https://HOST[:PORT]`, or `unix:/PATH` on this machine.
#![deny(clippy::indexing_slicing)] // a person writes it

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use longhaul_proto::Endpoint;
use longhaul_proto::text::printable;

/// Port of a URL that names none.
const HTTPS_PORT: u16 = 443;

/// Location of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceUrl {
    /// Over TLS.
    Https(Endpoint),
    /// At a socket on this machine.
    Unix(PathBuf),
}

/// The text does not name a service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}: write https://HOST:PORT, or unix:/PATH for this machine")]
pub struct UrlError(String);

impl FromStr for ServiceUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let wrong = || UrlError(printable(text.as_bytes()));
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') && !path.contains('\0') {
                true => Ok(Self::Unix(path.into())),
                false => Err(wrong()),
            };
        }
        let rest = text.strip_prefix("https://").ok_or_else(wrong)?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#', '@']) {
            return Err(wrong());
        }
        let server = Endpoint::parse_with_port(authority, HTTPS_PORT).map_err(|_| wrong())?;
        Ok(Self::Https(server))
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Https(server) => write!(f, "https://{server}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_by_its_host_or_its_socket() {
        for (url, shown) in [
            ("https://dtn.example", "https://dtn.example:443"),
            ("https://dtn.example:7512/", "https://dtn.example:7512"),
            ("https://[2001:db8::1]:1", "https://[2001:db8::1]:1"),
            ("unix:/run/longhaul/control", "unix:/run/longhaul/control"),
        ] {
            let read: ServiceUrl = url.parse().unwrap();
            assert_eq!(read.to_string(), shown);
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        for bad in [
            "http://dtn",
            "dtn:7512",
            "https://",
            "https://a/b",
            "https://u@h",
            "https://h?x",
            "https://h:x",
            "unix:here",
            "unix:",
        ] {
            assert!(bad.parse::<ServiceUrl>().is_err(), "{bad}");
        }
    }
}
