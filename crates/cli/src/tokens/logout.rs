//! `longhaul logout`: forgets logins.

use anyhow::{Result, bail};
use clap::Args;
use longhaul_output::message;
use longhaul_proto::text::printable;
use longhaul_tokens::login::{Login, LoginSource, LoginStore};

use super::logins;
use crate::exit::Exit;
use crate::home;

/// Forget a login and its tokens, here and at the issuer.
#[derive(Args)]
pub struct LogoutCommand {
    /// URL of the issuer, or the file that was named with `longhaul login --from`.
    #[arg(value_name = "ISSUER", required_unless_present = "all")]
    issuer: Option<String>,
    /// Forget all logins.
    #[arg(long, conflicts_with = "issuer")]
    all: bool,
}

impl LogoutCommand {
    /// Runs the command.
    pub fn run(self) -> Result<Exit> {
        let is_meant = |login: &Login| match (&self.issuer, &login.source) {
            (None, _) => self.all,
            (Some(issuer), LoginSource::Issuer(login)) => login.issuer == *issuer,
            (Some(path), LoginSource::File(file)) => {
                std::path::absolute(path).is_ok_and(|path| path == *file)
            }
        };
        let removed = LoginStore::new(logins()?).remove(is_meant)?;
        if removed.is_empty() {
            match self.issuer {
                None => message!("longhaul: there was no login"),
                Some(issuer) => bail!(
                    "there is no login at {}: longhaul login --list shows them",
                    printable(issuer.as_bytes())
                ),
            }
        }
        let runtime = crate::runtime::start_small()?;
        for login in &removed {
            let name = match &login.source {
                LoginSource::Issuer(login) => printable(login.issuer.as_bytes()),
                LoginSource::File(file) => home::display_path(file),
            };
            message!("longhaul: logged out: {name}");
            if let Err(error) = runtime.block_on(LoginStore::revoke(login)) {
                message!(
                    "longhaul: the issuer was not told, and may accept the token until it expires: \
                     {}",
                    printable(error.to_string().as_bytes())
                );
            }
        }
        Ok(Exit::Success)
    }
}
