//! Options for reaching and authenticating a server, for paths of the form `lh://host/path`, named
//! as in `longhaul cp`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use longhaul_copy_api::CopyOptions;
use longhaul_session::{ConnectOptions, Endpoint, PublicKey, Route, ServiceName};
use longhaul_transfer::SessionConnector;

use crate::trust::RememberingConnector;
use crate::{home, trust};

/// Options for lh://host/path.
#[derive(Args)]
#[command(next_help_heading = "At lh://host/path")]
pub struct ServerOptions {
    /// Depots to pass, in order, or `direct`. Repeatable: the first that leads there is used.
    /// [default: direct]
    #[arg(long, value_name = "HOP[,HOP...]|direct")]
    route: Vec<Route>,
    /// The server's key, as `longhaul serve` prints it; nothing else is trusted then.
    #[arg(long, value_name = "KEY")]
    host_key: Option<PublicKey>,
    /// Trust a server that is not known yet, and remember its key.
    #[arg(long, conflicts_with = "host_key")]
    accept_new: bool,
    /// Trust servers that prove their names by certificates of these authorities: a PEM file, or a
    /// directory [default: $X509_CERT_DIR].
    #[arg(long, value_name = "FILE|DIR")]
    ca: Option<PathBuf>,
    /// The key to authenticate with [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

impl ServerOptions {
    /// Returns the options that a copy has.
    pub fn for_copy(options: &CopyOptions) -> Self {
        Self {
            route: options.routes.clone(),
            host_key: options.host_key,
            accept_new: options.accept_new,
            ca: options.ca.clone(),
            identity: options.identity.clone(),
        }
    }

    /// Creates a connector that opens sessions with `server` for `service`.
    ///
    /// # Errors
    /// There is no key, or the user did not trust the server's key.
    pub async fn connector(
        &self,
        service: ServiceName,
        server: &Endpoint,
    ) -> Result<Arc<RememberingConnector>> {
        let identity = Arc::new(home::identity(self.identity.as_deref())?);
        let wanted = trust::HostKeyOptions {
            key: self.host_key,
            accept_new: self.accept_new,
            ca: self.ca.clone(),
        };
        let route = self.route.first().cloned().unwrap_or_default();
        let mut options = ConnectOptions::new(
            service,
            route,
            server.clone(),
            identity,
            trust::trust_nobody(),
        );
        let first = trust::settle(&wanted, &mut options).await?;
        let sessions = SessionConnector::new(options, self.route.clone());
        Ok(Arc::new(RememberingConnector::new(sessions, first)))
    }
}
