//! The file of principals: names and groups of keys, and authorities whose certificates vouch for
//! keys.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use longhaul_identity::{Identities, IdentityError};

use crate::service::ServicePlan;

/// Option for the names of keys.
#[derive(Args, Clone)]
pub struct PrincipalsOptions {
    /// Names and groups of keys, and authorities whose certificates are accepted (TOML; see
    /// docs/identities.md) [default: none; keys are listed themselves]. SIGHUP reads it again.
    #[arg(long, value_name = "FILE")]
    principals: Option<PathBuf>,
}

impl PrincipalsOptions {
    /// Loads the file, if one is given.
    ///
    /// # Errors
    /// [`IdentityError`], which names the file and the line.
    pub fn load(&self) -> Result<Arc<Identities>, IdentityError> {
        match &self.principals {
            Some(file) => Identities::load(file),
            None => Ok(Identities::unnamed()),
        }
    }

    /// Adds the file to the plan of a service.
    pub fn plan(&self, plan: &mut ServicePlan) {
        if let Some(file) = &self.principals {
            plan.file("principals", file, |file: &Path| {
                Identities::load(file).map(|_| "valid".to_owned())
            });
        }
    }
}
