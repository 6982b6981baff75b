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
//! All objects have numbers from the ranges in [`Numbers`], by which they are found after a crash.
//! Objects with other numbers are not touched. An interface whose root queueing discipline was
//! chosen by someone else is refused.
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

use crate::ask::{DriverError, Found, Reply, Request};
use crate::circuit::{Name, Part, PartId};
use crate::driver::{Answer, Driver};

pub use config::{ConfigFault, Numbers, RouterConfig, RouterLink, SLOTS};
use kernel::Kernel;
pub use kernel::{Start, this_machine};
use record::Record;
pub use record::RecordError;
use set::reserved;

/// A Linux router.
pub struct LinuxRouter {
    config: RouterConfig,
    kernel: Kernel,
    /// Serializes requests: each looks at the present state before it changes it.
    record: Mutex<Record>,
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
    pub fn open(config: RouterConfig, directory: &Path, start: Start) -> Result<Self, RouterError> {
        config.check()?;
        let record = Record::open(directory)?;
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
    pub async fn begin(&self) -> Vec<(Name, DriverError)> {
        let record = self.record.lock().await;
        let snapshot = match self.kernel.snapshot(&self.config).await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                let standing = self.standing();
                return standing
                    .map(|(name, _)| (name.clone(), error.clone()))
                    .collect();
            }
        };
        let mut failed = Vec::new();
        for (name, link) in self.standing() {
            let at = snapshot.interfaces.get(name).cloned().unwrap_or_default();
            let made = self
                .make_base(link, &at, reserved(&record, name, None))
                .await;
            failed.extend(made.err().map(|error| (name.clone(), error)));
        }
        failed
    }

    fn standing(&self) -> impl Iterator<Item = (&Name, &RouterLink)> {
        self.config.links.iter().filter(|(_, link)| link.standing)
    }

    async fn answer(&self, request: &Request) -> Result<Reply, DriverError> {
        let mut record = self.record.lock().await;
        match request {
            Request::SetUp { part } => {
                self.owned(&part.owner)?;
                self.set_up(part, &mut record).await
            }
            Request::TearDown { owner, id } => {
                self.owned(owner)?;
                self.tear_down(id, &mut record).await
            }
            Request::List { .. } => self.list(&record).await,
            Request::Counters { owner, id } => {
                self.owned(owner)?;
                self.counters(id, &record).await
            }
        }
    }

    /// Refuses requests of other owners.
    fn owned(&self, owner: &Name) -> Result<(), DriverError> {
        let ours = &self.config.owner;
        if owner == ours {
            return Ok(());
        }
        Err(DriverError::refused(format!(
            "this router is {ours}'s, and {owner} asks: give the router another owner, or run one \
            for each with numbers of its own"
        )))
    }

    fn link(&self, part: &Part) -> Result<&RouterLink, DriverError> {
        self.config.links.get(&part.link).ok_or_else(|| {
            let names = self.config.links.keys().map(Name::as_str);
            let names = names.collect::<Vec<_>>().join(", ");
            DriverError::refused(format!(
                "this router has no link {}: it has {names}",
                part.link
            ))
        })
    }

    async fn list(&self, record: &Record) -> Result<Reply, DriverError> {
        let snapshot = self.kernel.snapshot(&self.config).await?;
        let goes = |name: &Name| {
            self.config
                .links
                .get(name)
                .is_some_and(|link| !link.standing)
        };
        let mut idle = snapshot.interfaces.iter().filter(|(_, at)| at.is_idle());
        let links: Vec<&Name> = record.parts().map(|(_, part)| &part.link).collect();
        if idle.any(|(link, _)| goes(link) && !links.contains(&link)) {
            // Left by a router that was stopped in the middle, and whose record is gone: no request
            // would ever name it.
            self.settle_bases(record, None).await?;
        }
        let recorded = record.parts().map(|(slot, part)| Found {
            owner: part.owner.clone(),
            id: part.id.clone(),
            whole: snapshot.is_whole(slot, part),
            part: Some(part.clone()),
        });
        let unknown = snapshot
            .slots()
            .into_iter()
            .filter(|slot| record.part(*slot).is_none());
        let unknown = unknown.map(|slot| Found {
            owner: self.config.owner.clone(),
            id: PartId::unknown(slot),
            part: None,
            whole: false,
        });
        Ok(Reply::Parts {
            parts: recorded.chain(unknown).collect(),
        })
    }

    async fn counters(&self, id: &PartId, record: &Record) -> Result<Reply, DriverError> {
        let (slot, part) = record.slot(id).ok_or_else(|| DriverError::missing(id))?;
        let link = self.link(part)?;
        let counters = self
            .kernel
            .counters(&self.config.numbers, &link.interface, slot);
        let counters = counters.await?.ok_or_else(|| DriverError::missing(id))?;
        Ok(Reply::Counters(counters))
    }
}

impl Driver for LinuxRouter {
    fn ask<'a>(&'a self, request: &'a Request) -> Answer<'a, Reply> {
        Box::pin(self.answer(request))
    }
}
