//! The plan of a server for a check of its configuration.

use std::net::Ipv6Addr;

use longhaul_identity::Identities;
use longhaul_transfer::ServedRoot;

use super::{NO_GRANTS, ServeCommand};
use crate::service::ServicePlan;
use crate::target::SERVER_PORT;
use crate::{failure, home};

impl ServeCommand {
    /// Returns what it would use.
    pub fn plan(&self) -> ServicePlan {
        let mut plan = ServicePlan::default();
        let everywhere = (Ipv6Addr::UNSPECIFIED, SERVER_PORT).into();
        plan.listen("sessions", self.listen.as_slice(), Some(everywhere));
        plan.listen("metrics", self.metrics.as_slice(), None);
        plan.key(self.identity.as_deref());
        if let Some(root) = &self.root {
            plan.file("root", root, |root| {
                let opened = ServedRoot::open(root).map_err(std::io::Error::from);
                opened.map(|_| "a directory".to_owned())
            });
        }
        self.principals.plan(&mut plan);
        let trusts_issuers = match self.trusted_issuers() {
            Ok(Some(issuers)) => {
                plan.facts.push("issuers are valid".to_owned());
                !issuers.is_empty()
            }
            Ok(None) => false,
            Err(error) => {
                plan.faults.push(failure::format_line(&error));
                true
            }
        };
        match self.grants(Identities::unnamed()) {
            Ok(grants) if grants.is_empty() && !trusts_issuers => {
                plan.faults.push(NO_GRANTS.to_owned());
            }
            Ok(grants) => {
                plan.facts.push("grants are valid".to_owned());
                if grants.accounts() > 0 {
                    let (accounts, socket) = (grants.accounts(), &self.account_helper);
                    plan.facts.push(format!(
                        "works as {accounts} local accounts, by the helper at {}",
                        home::display_path(socket)
                    ));
                }
            }
            Err(error) => plan.faults.push(failure::format_line(&error)),
        }
        plan
    }
}
