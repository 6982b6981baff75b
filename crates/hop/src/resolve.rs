//! Name resolution by /etc/hosts and DNS, as configured in /etc/resolv.conf. Dropping a look-up
//! cancels it, and no look-up occupies a thread.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use longhaul_proto::{Endpoint, Host};
use parking_lot::Mutex;

/// Maximum number of addresses used per name.
const MAX_ADDRESSES: usize = 32;
/// Maximum number of concurrent queries to a name server: far more than a gate permits.
const MAX_CONCURRENT_QUERIES: usize = 4096;
const SYSTEM_FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Resolver of names. It reloads the system's files when they change.
#[derive(Debug, Default)]
pub struct Resolver {
    current: Mutex<Option<LoadedSources>>,
}

#[derive(Debug)]
struct LoadedSources {
    /// Modification times of the files.
    written: [Option<SystemTime>; SYSTEM_FILES.len()],
    names: NameSources,
}

/// Sources of names: first the hosts file, then DNS.
#[derive(Debug, Clone)]
struct NameSources {
    hosts: Arc<Hosts>,
    dns: TokioResolver,
}

/// Reason why a name has no address.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The name does not exist: check the spelling.
    #[error("the name does not exist or has no address")]
    NotFound,
    /// The name servers did not answer. Check `/etc/resolv.conf` and the network, or give an
    /// address instead of the name.
    #[error("no answer from the name servers")]
    NoAnswer,
    /// The system's settings cannot be used, or the name servers' answer is invalid.
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
    /// Creates a resolver that has read nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the addresses of `endpoint`: 1 to 32, IPv6 first. The caller bounds the time by
    /// dropping the future.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub async fn addresses(&self, endpoint: &Endpoint) -> Result<Vec<SocketAddr>, ResolveError> {
        let name = match &endpoint.host {
            Host::Ip(address) => {
                return Ok(vec![SocketAddr::new(address.to_canonical(), endpoint.port)]);
            }
            Host::Name(name) => name.as_str(),
        };
        let names = self.name_sources()?;
        // Checked here and not by the DNS library: for a name with only an IPv4 address in the
        // file, that would ask a name server for an IPv6 address.
        let mut found = names.lookup_hosts(name);
        if found.is_empty() {
            found = names
                .dns
                .lookup_ip(name)
                .await
                .map_err(resolve_error)?
                .iter()
                .collect();
        }
        let addresses: Vec<SocketAddr> = found
            .into_iter()
            .take(MAX_ADDRESSES)
            .map(|address| SocketAddr::new(address, endpoint.port))
            .collect();
        if addresses.is_empty() {
            return Err(ResolveError::NotFound);
        }
        Ok(addresses)
    }

    fn name_sources(&self) -> Result<NameSources, ResolveError> {
        let written = SYSTEM_FILES.map(|file| {
            std::fs::metadata(file)
                .and_then(|found| found.modified())
                .ok()
        });
        let mut current = self.current.lock();
        if let Some(current) = current
            .as_ref()
            .filter(|current| current.written == written)
        {
            return Ok(current.names.clone());
        }
        let names = NameSources::read().map_err(|error| ResolveError::Failed(error.to_string()))?;
        *current = Some(LoadedSources {
            written,
            names: names.clone(),
        });
        Ok(names)
    }
}

impl NameSources {
    fn read() -> Result<Self, NetError> {
        // If the file is missing or unreadable, only DNS is used.
        let hosts = Arc::new(Hosts::from_system().unwrap_or_default());
        let dns = dns_resolver()?;
        Ok(Self { hosts, dns })
    }

    fn lookup_hosts(&self, name: &str) -> Vec<IpAddr> {
        let Ok(name) = Name::from_ascii(name) else {
            return Vec::new();
        };
        [RecordType::AAAA, RecordType::A]
            .into_iter()
            .filter_map(|kind| {
                self.hosts
                    .lookup_static_host(&Query::query(name.clone(), kind))
            })
            .flat_map(|found| {
                found
                    .answers()
                    .iter()
                    .filter_map(|record| record.data.ip_addr())
                    .collect::<Vec<_>>()
            })
            .collect()
    }
}

fn dns_resolver() -> Result<TokioResolver, NetError> {
    let mut builder = if names_servers(Path::new(SYSTEM_FILES[0])) {
        TokioResolver::builder_tokio()?
    } else {
        // The C library's default if the file is missing or names no server.
        let local = NameServerConfig::udp_and_tcp(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![local]);
        TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
    };
    let options = builder.options_mut();
    options.use_hosts_file = ResolveHosts::Never;
    options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    options.max_active_requests = MAX_CONCURRENT_QUERIES;
    builder.build()
}

/// Returns true if a file such as /etc/resolv.conf names a name server.
fn names_servers(file: &Path) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .any(|line| line.split_whitespace().next() == Some("nameserver"))
}

fn resolve_error(error: NetError) -> ResolveError {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(_)) => ResolveError::NotFound,
        NetError::Timeout | NetError::NoConnections => ResolveError::NoAnswer,
        other => ResolveError::Failed(longhaul_proto::text::printable(
            other.to_string().as_bytes(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_name_servers_counts_as_missing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("resolv.conf");
        assert!(!names_servers(&file));
        std::fs::write(&file, "# nameserver 192.0.2.1\nsearch example\n").unwrap();
        assert!(!names_servers(&file));
        std::fs::write(&file, "search example\nnameserver 192.0.2.1\n").unwrap();
        assert!(names_servers(&file));
    }

    #[tokio::test]
    async fn addresses_need_no_look_up_and_localhost_no_server() {
        let resolver = Resolver::new();
        let at = |text: &str| text.parse::<Endpoint>().unwrap();
        assert_eq!(
            resolver
                .addresses(&at("[::ffff:192.0.2.1]:7"))
                .await
                .unwrap(),
            ["192.0.2.1:7".parse::<SocketAddr>().unwrap()]
        );
        assert!(
            resolver.current.lock().is_none(),
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
