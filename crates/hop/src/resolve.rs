//! Names to addresses, by /etc/hosts and DNS as /etc/resolv.conf says. A look-up ends when whoever asked drops it: none outlives its
//! asker, and none holds a thread.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use longhaul_proto::{Endpoint, Host};

/// Addresses of a name that are looked at.
const MAX_ADDRESSES: usize = 32;
/// Questions under way at a name server at once: far more than a gate lets be asked.
const MAX_QUESTIONS: usize = 4096;
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Looks names up. What it is told by the system's files follows their changes.
#[derive(Debug, Default)]
pub struct Resolver {
    current: Mutex<Option<Current>>,
}

#[derive(Debug)]
struct Current {
    /// When the files were last written.
    written: [Option<SystemTime>; FILES.len()],
    resolver: TokioResolver,
}

/// Why a name has no address.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// Nobody knows it: check the spelling.
    #[error("the name does not exist or has no address")]
    NotFound,
    /// The name servers did not answer.
    #[error("no answer from the name servers")]
    NoAnswer,
    /// The system's settings cannot be used, or the name servers answer nonsense.
    #[error("the look-up failed: {0}")]
    Failed(String),
}

impl From<ResolveError> for io::Error {
    fn from(error: ResolveError) -> Self {
        let kind = match error {
            ResolveError::NotFound => io::ErrorKind::NotFound,
            ResolveError::NoAnswer => io::ErrorKind::TimedOut,
            ResolveError::Failed(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

impl Resolver {
    /// One that has read nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The addresses of `endpoint`, at least one and at most 32, IPv6 first. Bounded in time by whoever drops it.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub async fn addresses(&self, endpoint: &Endpoint) -> Result<Vec<SocketAddr>, ResolveError> {
        let name = match &endpoint.host {
            Host::Ip(address) => return Ok(vec![SocketAddr::new(address.to_canonical(), endpoint.port)]),
            Host::Name(name) => name.as_str(),
        };
        let resolver = self.current()?;
        let found = resolver.lookup_ip(name).await.map_err(told)?;
        let addresses: Vec<SocketAddr> = found
            .iter()
            .take(MAX_ADDRESSES)
            .map(|address| SocketAddr::new(address, endpoint.port))
            .collect();
        if addresses.is_empty() {
            return Err(ResolveError::NotFound);
        }
        Ok(addresses)
    }

    fn current(&self) -> Result<TokioResolver, ResolveError> {
        let written = FILES.map(|file| std::fs::metadata(file).and_then(|found| found.modified()).ok());
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = current.as_ref().filter(|current| current.written == written) {
            return Ok(current.resolver.clone());
        }
        let resolver = build().map_err(|error| ResolveError::Failed(error.to_string()))?;
        *current = Some(Current {
            written,
            resolver: resolver.clone(),
        });
        Ok(resolver)
    }
}

fn build() -> Result<TokioResolver, NetError> {
    let mut builder = if Path::new(FILES[0]).exists() {
        TokioResolver::builder_tokio()?
    } else {
        // As the C library does without the file.
        let local = NameServerConfig::udp_and_tcp(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![local]);
        TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
    };
    let options = builder.options_mut();
    options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    options.max_active_requests = MAX_QUESTIONS;
    builder.build()
}

fn told(error: NetError) -> ResolveError {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(_)) => ResolveError::NotFound,
        NetError::Timeout | NetError::NoConnections => ResolveError::NoAnswer,
        other => ResolveError::Failed(longhaul_proto::text::printable(other.to_string().as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_need_no_look_up_and_localhost_no_server() {
        let resolver = Resolver::new();
        let at = |text: &str| text.parse::<Endpoint>().unwrap();
        assert_eq!(
            resolver.addresses(&at("[::ffff:192.0.2.1]:7")).await.unwrap(),
            ["192.0.2.1:7".parse::<SocketAddr>().unwrap()]
        );
        assert!(
            resolver.current.lock().unwrap().is_none(),
            "no file was read for that"
        );
        let local = resolver.addresses(&at("localhost:80")).await.unwrap();
        assert!(
            local
                .iter()
                .all(|address| address.ip().is_loopback() && address.port() == 80),
            "{local:?}"
        );
        let error = resolver
            .addresses(&at("no-such-host.invalid:80"))
            .await
            .unwrap_err();
        assert!(matches!(error, ResolveError::NotFound), "{error}");
    }
}
