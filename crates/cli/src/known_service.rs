//! Authentication of a service on another machine: by a given key, a remembered key, the user's
//! confirmation, or an authority.

use std::path::PathBuf;

use anyhow::Result;
use longhaul_control_client::https::HttpsTrust;
use longhaul_control_client::{ClientError, Https};
use longhaul_proto::{Endpoint, SigningKey};
use longhaul_session::ServerTrust;

use crate::trust::{self, HostKeyOptions};

/// Criteria for trusting a service.
pub struct ServiceTrust {
    /// Name of the service in messages.
    pub service: &'static str,
    /// The program that printed the service's key.
    pub program: &'static str,
    /// Options of the command line about its key.
    pub wanted: HostKeyOptions,
    /// File with the authority that must have signed its certificate. It replaces all other
    /// criteria.
    pub authority: Option<PathBuf>,
}

impl ServiceTrust {
    /// Creates a client of the service at `server` that authenticates with `key`. A new server key
    /// is remembered once the service has proved to own it.
    ///
    /// # Errors
    /// The service's key is not accepted, or certificates cannot be read.
    pub async fn https_client(&self, server: Endpoint, key: &SigningKey) -> Result<Https> {
        let asking = |trust| Https::new(self.service, server.clone(), trust, key.clone());
        if let Some(file) = &self.authority {
            return Ok(asking(HttpsTrust::Authority(file.clone()))?);
        }
        let by_key_alone = trust::is_known(&self.wanted, &server)?;
        let by = |trust: ServerTrust| match by_key_alone {
            true => HttpsTrust::Key(trust),
            false => HttpsTrust::AuthorityOrKey(trust),
        };
        let probe = async |trust| match asking(by(trust)).ok()?.connect().await {
            Err(ClientError::Unknown { found, .. }) => Some(found),
            // The first question will meet and report any other error.
            _ => None,
        };
        let (trust, first) =
            trust::resolve_trust(&self.wanted, &server, self.program, probe).await?;
        Ok(asking(by(trust))?.on_connected(move || first.remember_key()))
    }
}
