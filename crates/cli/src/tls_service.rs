//! Names and certificate of a service that other machines reach by TLS.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use longhaul_api::tls::{Certificate, ServerTls};
use longhaul_hop::unix_ms;
use longhaul_proto::{Endpoint, Host};
use longhaul_session::Identity;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::home;

/// Names and certificate of a service, which SIGHUP reads again.
pub struct TlsSettings {
    /// Names that requests may be addressed to.
    pub names: Vec<Endpoint>,
    /// Files of the site's certificate and its private key; the service makes its own if there are
    /// none.
    files: Option<(PathBuf, PathBuf)>,
    identity: Identity,
    current: watch::Sender<ServerTls>,
}

impl TlsSettings {
    /// Loads the certificate, or makes one, for a service that listens at `address` and has these
    /// names. Its own certificate is written into `dir`.
    pub fn new(
        given_names: &[String],
        files: (Option<&Path>, Option<&Path>),
        identity: &Identity,
        dir: &Path,
        address: SocketAddr,
    ) -> Result<Self> {
        let names = names(given_names, address)?;
        let files = match files {
            (Some(certificate), Some(key)) => Some((certificate.to_owned(), key.to_owned())),
            _ => None,
        };
        let certificate = certificate(files.as_ref(), identity, &names)?;
        publish(&certificate, dir)?;
        Ok(Self {
            names,
            files,
            identity: identity.clone(),
            current: watch::Sender::new(certificate.config),
        })
    }

    /// Returns the certificate in use, for a listener.
    pub fn subscribe(&self) -> watch::Receiver<ServerTls> {
        self.current.subscribe()
    }

    /// Reads the certificate again. A certificate with an error changes nothing.
    pub fn reload(&self) {
        match certificate(self.files.as_ref(), &self.identity, &self.names) {
            Ok(made) => {
                tracing::info!("the certificate was reloaded");
                self.current.send_replace(made.config);
            }
            Err(error) => {
                tracing::error!(
                    %error,
                    "the certificate was not reloaded: the previous one stays in use"
                )
            }
        }
    }
}

/// Loads the site's certificate, or makes one from the service's own key.
fn certificate(
    files: Option<&(PathBuf, PathBuf)>,
    identity: &Identity,
    names: &[Endpoint],
) -> Result<Certificate> {
    if let Some((certificate, key)) = files {
        return Ok(Certificate::from_files(certificate, key)?);
    }
    let mut hosts: Vec<String> = names.iter().map(|name| bare(&name.host)).collect();
    hosts.sort();
    hosts.dedup();
    Ok(Certificate::from_key(identity.signing_key(), &hosts)?)
}

/// Writes a service's own certificate to a file, for programs that authenticate services by
/// certificates: `curl --cacert`.
fn publish(certificate: &Certificate, dir: &Path) -> Result<()> {
    let Some(pem) = &certificate.pem else {
        return Ok(());
    };
    let file = dir.join("certificate.pem");
    std::fs::write(&file, pem)
        .with_context(|| format!("cannot write {}", home::display_path(&file)))
}

/// Waits for the next second, and returns it in seconds since the Unix epoch. Requests signed
/// before it are refused: the previous process may have admitted them already, and its record of
/// them is gone.
pub async fn first_second() -> u64 {
    let now = unix_ms();
    let since = now / 1000 + 1;
    sleep(Duration::from_millis((since * 1000).saturating_sub(now))).await;
    since
}

/// Returns the names that requests may be addressed to: the given ones, the addresses that it
/// listens at, and this host's name.
pub fn names(given: &[String], address: SocketAddr) -> Result<Vec<Endpoint>> {
    let port = address.port();
    let mut names = Vec::new();
    for name in given {
        let name = Endpoint::parse_with_port(name, port);
        names.push(name.context("--server-name")?);
    }
    let addresses = match address.ip().is_unspecified() {
        true => own_addresses(address.ip().is_ipv4())?,
        false => vec![address.ip()],
    };
    names.extend(
        addresses
            .into_iter()
            .map(|ip| Endpoint::new(Host::Ip(ip), port)),
    );
    // The host name may be anything; it is left out if it is not valid.
    names.extend(Endpoint::parse_with_port(&host_name(), port));
    names.extend(
        address
            .ip()
            .is_loopback()
            .then(|| Endpoint::new(Host::Name("localhost".into()), port)),
    );
    Ok(names)
}

/// Returns this host's name, as the system has it.
pub fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// Formats a host without the brackets of an address.
fn bare(host: &Host) -> String {
    match host {
        Host::Name(name) => name.clone(),
        Host::Ip(ip) => ip.to_string(),
    }
}

/// Returns this machine's addresses, of one family or of both.
fn own_addresses(only_v4: bool) -> Result<Vec<IpAddr>> {
    let interfaces = if_addrs::get_if_addrs().context("cannot tell this machine's addresses")?;
    let addresses = interfaces.into_iter().map(|interface| interface.ip());
    Ok(addresses.filter(|ip| ip.is_ipv4() || !only_v4).collect())
}
