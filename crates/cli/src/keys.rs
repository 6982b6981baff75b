//! `longhaul keys`: makes and lists identities.

mod vouch;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use longhaul_output::message;
use longhaul_proto::text::printable;
use longhaul_session::Identity;

use crate::exit::Exit;
use crate::{answer, home};
use vouch::Vouch;

/// Ending of the files of vouchers, which are beside their keys.
const VOUCHER_ENDING: &str = ".voucher";

/// Make, list and show keys.
///
/// A key is an Ed25519 pair in a file that only its owner may read. Its public half, lhk1:..., is
/// what servers and depots list as allowed, and what a user compares on first contact with a
/// server.
#[derive(Args)]
pub struct Keys {
    #[command(subcommand)]
    command: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Make a key: the default one, or one with a name.
    New {
        /// Name of the key, for `longhaul cp --identity` and `longhaul serve --identity`.
        name: Option<String>,
    },
    /// List the existing keys (the default).
    List,
    /// Print one public key alone on a line.
    Show {
        /// Name of the key [default: the default key, which is made when it is first needed].
        name: Option<String>,
    },
    Vouch(Vouch),
}

impl Keys {
    /// Runs the command.
    pub fn run(self) -> Result<Exit> {
        match self.command.unwrap_or(Action::List) {
            Action::New { name } => {
                let file = home::identity_file(name.as_deref())?;
                let identity = Identity::create(&file)?;
                answer::write_line(format_args!(
                    "{} {}",
                    identity.public(),
                    home::display_path(&file)
                ));
            }
            Action::Show { name: None } => {
                answer::write_line(home::identity(None)?.public());
            }
            Action::Show { name: Some(name) } => {
                let file = home::identity_file(Some(&name))?;
                if !file.exists() {
                    bail!(
                        "{}: no such key; make it with: longhaul keys new {name}",
                        home::display_path(&file)
                    );
                }
                answer::write_line(Identity::load(&file)?.public());
            }
            Action::List => list()?,
            Action::Vouch(vouch) => vouch.run()?,
        }
        Ok(Exit::Success)
    }
}

fn list() -> Result<()> {
    let dir = home::make_dir()?;
    let mut files = Vec::new();
    for entry in
        std::fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?
    {
        let entry = entry.with_context(|| format!("cannot read {}", dir.display()))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_key = name == "identity" || name.starts_with("identity-");
        if is_key && !name.ends_with(VOUCHER_ENDING) {
            files.push(entry.path());
        }
    }
    files.sort();
    for file in &files {
        match Identity::load(file) {
            Ok(identity) => answer::write_line(format_args!(
                "{} {}",
                identity.public(),
                home::display_path(file)
            )),
            Err(error) => message!("longhaul: {}", printable(error.to_string().as_bytes())),
        }
    }
    if files.is_empty() {
        message!(
            "longhaul: no key in {} yet; make one with: longhaul keys new",
            home::display_path(&dir)
        );
    }
    Ok(())
}
