//! Location of keys and known servers, with messages for the command line.

use std::path::Path;

use anyhow::Result;
pub use longhaul_config::home::{
    display_path, existing_identity, identity_file, known_hosts_file, make_dir, make_private,
    state_dir,
};
use longhaul_output::message;
use longhaul_session::Identity;

/// Loads the identity in `file`, or the default one. Prints a line when it makes the default one.
pub fn identity(file: Option<&Path>) -> Result<Identity> {
    let made = |identity: &Identity, file: &Path| {
        message!(
            "longhaul: made a new key, {}, in {}",
            identity.public(),
            display_path(file)
        );
    };
    Ok(longhaul_config::home::identity(file, made)?)
}
