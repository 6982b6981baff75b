//! Resources that a service would use, as far as they are known without starting it.

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use longhaul_session::Identity;

use crate::home;

/// Plan of a service, as lines for a person.
#[derive(Debug, Default)]
pub struct ServicePlan {
    /// Addresses that it listens on.
    pub listens: Vec<SocketAddr>,
    /// Resources that it would use.
    pub facts: Vec<String>,
    /// Reasons why it would not start, or not work.
    pub faults: Vec<String>,
}

impl ServicePlan {
    /// Adds the addresses of a listener. `default` replaces them if there are none.
    pub fn listen(&mut self, what: &str, addresses: &[SocketAddr], default: Option<SocketAddr>) {
        let given = addresses.iter().copied();
        let default = default.filter(|_| addresses.is_empty());
        for address in given.chain(default) {
            let state = match TcpListener::bind(address) {
                Ok(_) => "",
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    " (in use now: by this service, if it runs)"
                }
                Err(error) => {
                    self.faults
                        .push(format!("{address}: cannot listen for {what}: {error}"));
                    continue;
                }
            };
            self.facts.push(format!("{what} at {address}{state}"));
            self.listens
                .extend((address.port() != 0).then_some(address));
        }
    }

    /// Adds the service's key: that in `file`, or the default one.
    pub fn key(&mut self, file: Option<&Path>) {
        let default = home::identity_file(None);
        let shown = |file: &Path| home::display_path(file);
        match (file, default) {
            (Some(file), _) => self.file("key", file, |file| {
                Identity::load(file).map(|identity| identity.public().to_string())
            }),
            (None, Ok(file)) if file.exists() => self.file("key", &file, |file| {
                Identity::load(file).map(|identity| identity.public().to_string())
            }),
            (None, Ok(file)) => {
                let fact = format!("key: none yet; it is made in {}", shown(&file));
                self.facts.push(fact);
            }
            (None, Err(error)) => self.faults.push(error.to_string()),
        }
    }

    /// Adds a file, and what `read` finds in it. An error of `read` names the file.
    pub fn file<E: Display>(
        &mut self,
        what: &str,
        file: &Path,
        read: impl FnOnce(&Path) -> Result<String, E>,
    ) {
        let shown = home::display_path(file);
        match read(file) {
            Ok(found) => self.facts.push(format!("{what} {shown}: {found}")),
            Err(error) => {
                let error = error.to_string();
                self.faults.push(match error.contains(&shown) {
                    true => error,
                    false => format!("{what} {shown}: {error}"),
                });
            }
        }
    }
}
