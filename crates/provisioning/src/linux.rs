//! A driver for the local Linux machine, by `tc` and `ip` of iproute2.
//!
//! Each part gets, on the interface of its link, an HTB class with the part's rate as both rate and
//! ceiling, and a short queue in it. A classic BPF filter directs the part's packets to the class.
//! A policy rule with its own routing table sends the same packets out by that interface.
//!
//! Packets beyond the rate wait in the class's own queue and are dropped once it is full, so they
//! take nothing from others. All other packets share one class. It has the rate that circuits do
//! not reserve, and may borrow what they do not use.
//!
//! All objects have numbers from the ranges in [`KernelNumbers`], by which they are found after a
//! crash. Objects with other numbers are not touched. An interface whose root queueing discipline
//! was chosen by someone else is refused.
//!
//! A file records the number of each part. An object with a number of these ranges that is not in
//! the file is listed under an id that begins with `?`, as incomplete. A request to tear it down
//! removes it.

mod clear;
mod config;
mod filter;
mod kernel;
mod record;
mod room;
mod set;
mod snapshot;
#[cfg(test)]
mod tests;

use std::path::Path;

use tokio::sync::Mutex;

use crate::ask::{DriverError, DriverReply, DriverRequest, ListedPart};
use crate::circuit::{CircuitPart, EntityName, PartId};
use crate::driver::{Driver, DriverFuture};

pub use config::{ConfigFault, KernelNumbers, MAX_SLOTS, RouterConfig, RouterLink};
use kernel::Kernel;
pub use kernel::{CommandBuilder, this_machine};
pub use record::RecordError;
use record::SlotRecord;
use set::reserved_rate;

/// A Linux router.
pub struct LinuxRouter {
    config: RouterConfig,
    kernel: Kernel,
    /// Serializes requests: each looks at the present state before it changes it.
    record: Mutex<SlotRecord>,
}

/// Reason why the router cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigFault),
    /// The record cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl LinuxRouter {
    /// Opens a router that keeps its record in `directory`, which is created if missing.
    ///
    /// The directory should not survive a restart of the machine, because the kernel objects do not
    /// either. `start` creates the commands of `tc` and `ip`; see [`this_machine`].
    ///
    /// # Errors
    /// [`RouterError`]. Nothing has been asked of the kernel yet.
    pub fn open(
        config: RouterConfig,
        directory: &Path,
        start: CommandBuilder,
    ) -> Result<Self, RouterError> {
        config.check()?;
        let record = SlotRecord::open(directory)?;
        Ok(Self {
            config,
            kernel: Kernel::new(start),
            record: Mutex::new(record),
        })
    }

    /// Installs the router's queueing discipline at each interface at which it is to stay. So no
    /// circuit finds packets waiting there that it would have to drop.
    ///
    /// Returns the links on which that failed, each with the reason. It is tried again with the
    /// first circuit.
    pub async fn install_standing_disciplines(&self) -> Vec<(EntityName, DriverError)> {
        let record = self.record.lock().await;
        let snapshot = match self.kernel.snapshot(&self.config).await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                let standing = self.standing_links();
                return standing
                    .map(|(name, _)| (name.clone(), error.clone()))
                    .collect();
            }
        };
        let mut failed = Vec::new();
        for (name, link) in self.standing_links() {
            let at = snapshot.interfaces.get(name).cloned().unwrap_or_default();
            let made = self
                .make_base(link, &at, reserved_rate(&record, name, None))
                .await;
            failed.extend(made.err().map(|error| (name.clone(), error)));
        }
        failed
    }

    fn standing_links(&self) -> impl Iterator<Item = (&EntityName, &RouterLink)> {
        self.config.links.iter().filter(|(_, link)| link.standing)
    }

    async fn handle(&self, request: &DriverRequest) -> Result<DriverReply, DriverError> {
        let mut record = self.record.lock().await;
        match request {
            DriverRequest::SetUp { part } => {
                self.check_owner(&part.owner)?;
                self.set_up(part, &mut record).await
            }
            DriverRequest::TearDown { owner, id } => {
                self.check_owner(owner)?;
                self.tear_down(id, &mut record).await
            }
            DriverRequest::List { .. } => self.list(&record).await,
            DriverRequest::Counters { owner, id } => {
                self.check_owner(owner)?;
                self.counters(id, &record).await
            }
        }
    }

    /// Refuses requests of other owners.
    fn check_owner(&self, owner: &EntityName) -> Result<(), DriverError> {
        let ours = &self.config.owner;
        if owner == ours {
            return Ok(());
        }
        Err(DriverError::refused(format!(
            "this router serves {ours}, not {owner}: change its owner, or run one router for each \
             owner, with its own numbers"
        )))
    }

    fn link(&self, part: &CircuitPart) -> Result<&RouterLink, DriverError> {
        self.config.links.get(&part.link).ok_or_else(|| {
            let names = self.config.links.keys().map(EntityName::as_str);
            let names = names.collect::<Vec<_>>().join(", ");
            DriverError::refused(format!(
                "this router has no link {}: it has {names}",
                part.link
            ))
        })
    }

    async fn list(&self, record: &SlotRecord) -> Result<DriverReply, DriverError> {
        let snapshot = self.kernel.snapshot(&self.config).await?;
        let goes = |name: &EntityName| {
            self.config
                .links
                .get(name)
                .is_some_and(|link| !link.standing)
        };
        let mut idle = snapshot.interfaces.iter().filter(|(_, at)| at.is_idle());
        let links: Vec<&EntityName> = record.parts().map(|(_, part)| &part.link).collect();
        if idle.any(|(link, _)| goes(link) && !links.contains(&link)) {
            // Left by a router that was stopped in the middle, and whose record is gone: no request
            // would ever name it.
            self.settle_bases(record, None).await?;
        }
        let recorded = record.parts().map(|(slot, part)| ListedPart {
            owner: part.owner.clone(),
            id: part.id.clone(),
            whole: snapshot.is_whole(slot, part),
            part: Some(part.clone()),
        });
        let unknown = snapshot
            .slots()
            .into_iter()
            .filter(|slot| record.part(*slot).is_none());
        let unknown = unknown.map(|slot| ListedPart {
            owner: self.config.owner.clone(),
            id: PartId::from_unknown_slot(slot),
            part: None,
            whole: false,
        });
        Ok(DriverReply::Parts {
            parts: recorded.chain(unknown).collect(),
        })
    }

    async fn counters(&self, id: &PartId, record: &SlotRecord) -> Result<DriverReply, DriverError> {
        let (slot, part) = record
            .find_part(id)
            .ok_or_else(|| DriverError::missing(id))?;
        let link = self.link(part)?;
        let counters = self
            .kernel
            .counters(&self.config.numbers, &link.interface, slot);
        let counters = counters.await?.ok_or_else(|| DriverError::missing(id))?;
        Ok(DriverReply::Counters(counters))
    }
}

impl Driver for LinuxRouter {
    fn ask<'a>(&'a self, request: &'a DriverRequest) -> DriverFuture<'a, DriverReply> {
        Box::pin(self.handle(request))
    }
}
