//! Where keys and known servers are kept, as the command line speaks of it.

use std::path::Path;

use anyhow::Result;
pub use longhaul_config::home::{
    identity_file, known_hosts, make_dir, make_private, shown, state_dir,
};
use longhaul_output::message;
use longhaul_session::Identity;

/// The identity in `file`, or the default one. A line says so when it is made.
pub fn identity(file: Option<&Path>) -> Result<Identity> {
    let made = |identity: &Identity, file: &Path| {
        message!(
            "longhaul: made a new key, {}, in {}",
            identity.public(),
            shown(file)
        );
    };
    Ok(longhaul_config::home::identity(file, made)?)
}
