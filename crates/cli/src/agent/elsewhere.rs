//! The agent at addresses other than loopback: TLS, and the keys that may use it.

use std::future::ready;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use longhaul_agent::Agent;
use longhaul_agent::http::router_for_keys;
use longhaul_api::authorized_keys::AuthorizedKeys;
use longhaul_api::{KeyGate, listen};
use longhaul_service::Hangup;
use longhaul_session::Identity;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::tls_service::{TlsSettings, first_second};

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
        let files = (self.tls_cert.as_deref(), self.tls_key.as_deref());
        let tls = TlsSettings::new(&self.server_name, files, identity, dir, address)?;
        let since = first_second().await;
        let gate = KeyGate::new(keys, tls.names.iter().map(ToString::to_string), since);
        let router = router_for_keys(agent.clone(), Arc::clone(&gate), stop.clone());
        served.spawn(listen::serve_secured(
            listener,
            router,
            tls.subscribe(),
            stop.clone(),
        ));
        let (hangup, options) = (Hangup::take()?, self.clone());
        let mut stop = stop;
        tokio::spawn(async move {
            let reload = || {
                options.reload_keys(&gate);
                tls.reload();
                ready(())
            };
            tokio::select! {
                never = hangup.run_each(reload) => match never {},
                _ = stop.wait_for(|stop| *stop) => {}
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

    /// Reads the keys again. A file with an error changes nothing.
    fn reload_keys(&self, gate: &KeyGate) {
        match self.keys() {
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
    }
}
