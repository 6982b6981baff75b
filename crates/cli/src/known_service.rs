//! How a service on another machine is known: by its key, from an earlier meeting, by asking the
//! person, or by an authority.

use std::path::PathBuf;

use anyhow::Result;
use longhaul_control_client::https::Trust;
use longhaul_control_client::{ClientError, Https};
use longhaul_proto::{Endpoint, SigningKey};
use longhaul_session::ServerTrust;

use crate::trust::{self, Wanted};

/// What is said of it.
pub struct Known {
    /// What it is, in a word for messages.
    pub service: &'static str,
    /// The program that printed its key.
    pub program: &'static str,
    /// What the command line says of its key.
    pub wanted: Wanted,
    /// The authority that signed its certificate, in place of all that.
    pub authority: Option<PathBuf>,
}

impl Known {
    /// What asks it with `key`, at `server`. A key that is not known yet is written down once the
    /// service has proved to have it.
    ///
    /// # Errors
    /// Its key is not accepted, or certificates cannot be read.
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
            // Whatever else is wrong, the first question meets and reports it.
            _ => None,
        };
        let (trust, first) = trust::of(&self.wanted, &server, self.program, probe).await?;
        Ok(asking(by(trust))?.telling(move || first.proved()))
    }
}
