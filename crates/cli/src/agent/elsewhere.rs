//! The agent at other addresses than loopback: TLS, and keys that may ask.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use longhaul_agent::Agent;
use longhaul_agent::http::router_for_keys;
use longhaul_api::authorized_keys::AuthorizedKeys;
use longhaul_api::tls::{Certificate, ServerTls};
use longhaul_api::{KeyGate, listen};
use longhaul_hop::unix_ms;
use longhaul_proto::{Endpoint, Host};
use longhaul_session::Identity;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::home;

/// For other machines.
#[derive(Args, Clone)]
#[command(next_help_heading = "For other machines")]
pub struct Elsewhere {
    /// Answer the keys in this file at --listen, which may then be any address, by TLS: a line for each, KEY NAME all|read. SIGHUP reads it again.
    #[arg(long, value_name = "FILE", requires = "listen")]
    authorized_keys: Option<PathBuf>,
    /// A name by which others reach this agent, with the port if that is another one. Repeatable. [default: the addresses that it listens at, and this host's name]
    #[arg(long, value_name = "HOST[:PORT]", requires = "authorized_keys")]
    server_name: Vec<String>,
    /// A certificate of this site, in PEM form, with those that lead to its authority [default: one made of the agent's own key]. SIGHUP reads it again.
    #[arg(long, value_name = "FILE", requires_all = ["authorized_keys", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, in PEM form.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl Elsewhere {
    /// Whether anybody else than this machine is answered.
    pub fn is_wanted(&self) -> bool {
        self.authorized_keys.is_some()
    }

    /// Listens, serves until `stop` is true, and says where.
    pub async fn serve(
        &self,
        agent: &Agent,
        dir: &Path,
        identity: &Identity,
        listen: SocketAddr,
        stop: watch::Receiver<bool>,
        served: &mut JoinSet<std::io::Result<()>>,
    ) -> Result<SocketAddr> {
        let keys = self.keys()?;
        let listener = listen::anywhere(listen).await?;
        let address = listener.local_addr().context("cannot tell where it listens")?;
        let names = self.names(address)?;
        let certificate = self.certificate(identity, &names)?;
        if let Some(pem) = &certificate.pem {
            // For programs that know services by certificates: `curl --cacert`.
            let file = dir.join("certificate.pem");
            std::fs::write(&file, pem).with_context(|| format!("cannot write {}", home::shown(&file)))?;
        }
        // Whoever was the agent here before has forgotten nothing that it let in before this second, and nothing is let in that was signed before the next.
        let now = unix_ms();
        let since = now / 1000 + 1;
        sleep(Duration::from_millis((since * 1000).saturating_sub(now))).await;
        let gate = KeyGate::new(keys, names.iter().map(ToString::to_string), since);
        let (tls, current) = watch::channel(certificate.config);
        let router = router_for_keys(agent.clone(), Arc::clone(&gate), stop.clone());
        served.spawn(listen::serve_secured(listener, router, current, stop.clone()));
        let mut hang_up = signal(SignalKind::hangup())?;
        let again = Again {
            options: self.clone(),
            identity: identity.clone(),
            names,
        };
        tokio::spawn(async move {
            let mut stop = stop;
            loop {
                tokio::select! {
                    Some(()) = hang_up.recv() => again.read(&gate, &tls),
                    _ = stop.wait_for(|stop| *stop) => return,
                }
            }
        });
        Ok(address)
    }

    fn keys(&self) -> Result<AuthorizedKeys> {
        let file = self
            .authorized_keys
            .as_deref()
            .context("--authorized-keys is not given")?;
        Ok(AuthorizedKeys::load(file, rustix::process::geteuid().as_raw())?)
    }

    fn certificate(&self, identity: &Identity, names: &[Endpoint]) -> Result<Certificate> {
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            return Ok(Certificate::of_site(certificate, key)?);
        }
        let mut hosts: Vec<String> = names.iter().map(|name| bare(&name.host)).collect();
        hosts.sort();
        hosts.dedup();
        Ok(Certificate::own(identity.signing_key(), &hosts)?)
    }

    /// What requests may be for.
    fn names(&self, address: SocketAddr) -> Result<Vec<Endpoint>> {
        let port = address.port();
        let mut names = Vec::new();
        for name in &self.server_name {
            let name = Endpoint::parse_with_port(name, port);
            names.push(name.context("--server-name")?);
        }
        let addresses = match address.ip().is_unspecified() {
            true => own_addresses(address.ip().is_ipv4())?,
            false => vec![address.ip()],
        };
        names.extend(addresses.into_iter().map(|ip| Endpoint::new(Host::Ip(ip), port)));
        // What is no name of a host (it may be anything) is none here either.
        names.extend(Endpoint::parse_with_port(&super::host_name(), port));
        names.extend(
            address
                .ip()
                .is_loopback()
                .then(|| Endpoint::new(Host::Name("localhost".into()), port)),
        );
        Ok(names)
    }
}

/// What is read again at SIGHUP.
struct Again {
    options: Elsewhere,
    identity: Identity,
    names: Vec<Endpoint>,
}

impl Again {
    /// What is wrong changes nothing.
    fn read(&self, gate: &KeyGate, tls: &watch::Sender<ServerTls>) {
        match self.options.keys() {
            Ok(keys) => {
                tracing::info!(keys = keys.len(), "the authorized keys were read again");
                gate.replace_keys(keys);
            }
            Err(error) => tracing::error!(%error, "the authorized keys stay as they were"),
        }
        match self.options.certificate(&self.identity, &self.names) {
            Ok(certificate) => _ = tls.send_replace(certificate.config),
            Err(error) => tracing::error!(%error, "the certificate stays as it was"),
        }
    }
}

/// A host without the brackets of an address.
fn bare(host: &Host) -> String {
    match host {
        Host::Name(name) => name.clone(),
        Host::Ip(ip) => ip.to_string(),
    }
}

/// This machine's addresses, of one family or of both.
fn own_addresses(only_v4: bool) -> Result<Vec<IpAddr>> {
    let interfaces = if_addrs::get_if_addrs().context("cannot tell this machine's addresses")?;
    let addresses = interfaces.into_iter().map(|interface| interface.ip());
    Ok(addresses.filter(|ip| ip.is_ipv4() || !only_v4).collect())
}
