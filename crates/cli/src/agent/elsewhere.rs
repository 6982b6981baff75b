//! The agent at addresses other than loopback: TLS, and the keys that may use it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use longhaul_agent::Agent;
use longhaul_agent::http::router_for_keys;
use longhaul_api::authorized_keys::AuthorizedKeys;
use longhaul_api::tls::{Certificate, ServerTls};
use longhaul_api::{KeyGate, listen};
use longhaul_proto::Endpoint;
use longhaul_session::Identity;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::tls_service::{certificate, first_second, names, publish};

/// Options for clients on other machines.
#[derive(Args, Clone)]
#[command(next_help_heading = "For other machines")]
pub struct RemoteAccessOptions {
    /// Serve the keys in this file at --listen, by TLS; --listen may then be any address. One line
    /// for each key: KEY NAME all|read. SIGHUP reads it again.
    #[arg(long, value_name = "FILE", requires = "listen")]
    authorized_keys: Option<PathBuf>,
    /// A name by which other machines reach this agent, with the port if it differs. Repeatable.
    /// [default: the addresses that it listens at, and this host's name]
    #[arg(long, value_name = "HOST[:PORT]", requires = "authorized_keys")]
    server_name: Vec<String>,
    /// A certificate of this site, in PEM form, with the chain to its authority [default: one made
    /// of the agent's own key]. SIGHUP reads it again.
    #[arg(long, value_name = "FILE", requires_all = ["authorized_keys", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, in PEM form.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl RemoteAccessOptions {
    /// Returns true if clients on other machines are served.
    pub fn is_enabled(&self) -> bool {
        self.authorized_keys.is_some()
    }

    /// Listens, prints the address, and serves until `stop` is true.
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
        let listener = listen::any_address(listen).await?;
        let address = listener
            .local_addr()
            .context("cannot determine the listening address")?;
        let names = names(&self.server_name, address)?;
        let certificate = self.certificate(identity, &names)?;
        publish(&certificate, dir)?;
        let since = first_second().await;
        let gate = KeyGate::new(keys, names.iter().map(ToString::to_string), since);
        let (tls, current) = watch::channel(certificate.config);
        let router = router_for_keys(agent.clone(), Arc::clone(&gate), stop.clone());
        served.spawn(listen::serve_secured(
            listener,
            router,
            current,
            stop.clone(),
        ));
        let mut hang_up = signal(SignalKind::hangup())?;
        let again = ReloadableFiles {
            options: self.clone(),
            identity: identity.clone(),
            names,
        };
        tokio::spawn(async move {
            let mut stop = stop;
            loop {
                tokio::select! {
                    Some(()) = hang_up.recv() => again.reload(&gate, &tls),
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
        Ok(AuthorizedKeys::load(
            file,
            rustix::process::geteuid().as_raw(),
        )?)
    }

    fn certificate(&self, identity: &Identity, names: &[Endpoint]) -> Result<Certificate> {
        certificate(
            self.tls_cert.as_deref(),
            self.tls_key.as_deref(),
            identity,
            names,
        )
    }
}

/// Files that SIGHUP reads again.
struct ReloadableFiles {
    options: RemoteAccessOptions,
    identity: Identity,
    names: Vec<Endpoint>,
}

impl ReloadableFiles {
    /// Reads them. A file with an error changes nothing.
    fn reload(&self, gate: &KeyGate, tls: &watch::Sender<ServerTls>) {
        match self.options.keys() {
            Ok(keys) => {
                tracing::info!(keys = keys.len(), "the authorized keys were reloaded");
                gate.replace_keys(keys);
            }
            Err(error) => {
                tracing::error!(
                    %error,
                    "the authorized keys were not reloaded: the previous ones stay in force"
                )
            }
        }
        match self.options.certificate(&self.identity, &self.names) {
            Ok(certificate) => _ = tls.send_replace(certificate.config),
            Err(error) => {
                tracing::error!(
                    %error,
                    "the certificate was not reloaded: the previous one stays in use"
                )
            }
        }
    }
}
