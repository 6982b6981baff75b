//! Authentication of a service on another machine: by a given key, a remembered key, the user's
//! confirmation, or an authority.

use std::path::PathBuf;

use anyhow::Result;
use longhaul_control_client::https::Trust;
use longhaul_control_client::{ClientError, Https};
use longhaul_proto::{Endpoint, SigningKey};
use longhaul_session::ServerTrust;

use crate::trust::{self, Wanted};

/// Criteria for trusting a service.
pub struct Known {
    /// Name of the service in messages.
    pub service: &'static str,
    /// The program that printed the service's key.
    pub program: &'static str,
    /// Options of the command line about its key.
    pub wanted: Wanted,
    /// File with the authority that must have signed its certificate. It replaces all other
    /// criteria.
    pub authority: Option<PathBuf>,
}

impl Known {
    /// Creates a client of the service at `server` that authenticates with `key`. A new server key
    /// is remembered once the service has proved to own it.
    ///
    /// # Errors
    /// The service's key is not accepted, or certificates cannot be read.
    pub async fn https(&self, server: Endpoint, key: &SigningKey) -> Result<Https> {
        let asking = |trust| Https::new(self.service, server.clone(), trust, key.clone());
        if let Some(file) = &self.authority {
            return Ok(asking(Trust::Authority(file.clone()))?);
        }
        let by_key_alone = trust::is_known(&self.wanted, &server)?;
        let by = |trust: ServerTrust| match by_key_alone {
            true => Trust::Key(trust),
            false => Trust::AuthorityOrKey(trust),
        };
        let probe = async |trust| match asking(by(trust)).ok()?.connect().await {
            Err(ClientError::Unknown { found, .. }) => Some(found),
            // The first question will meet and report any other error.
            _ => None,
        };
        let (trust, first) = trust::of(&self.wanted, &server, self.program, probe).await?;
        Ok(asking(by(trust))?.telling(move || first.proved()))
    }
}
