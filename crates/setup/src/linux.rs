//! A driver: the Linux machine that it runs on, by `tc` and `ip` of iproute2.
//!
//! A part becomes, on the interface that its link is, an HTB class with the part's rate as both
//! rate and ceiling, a short queue in it, and a classic BPF filter that brings the part's packets
//! there; and a policy rule with a routing table of its own, by which the same packets leave by
//! that interface. What is more than the rate waits in the class's own queue and is dropped when
//! that is full: it takes nothing from anybody else. All other packets share one class, which has
//! what the circuits don't reserve and may use what they don't use.
//!
//! All of it has numbers from ranges that [`Numbers`] says, by which it is found again after a
//! crash. What has other numbers is not touched; an interface whose root queueing discipline
//! somebody else chose is refused. A file says which part has which number. What has a number of
//! these ranges and isn't in the file is listed under an id that begins with `?`, as not whole:
//! whoever asks to tear it down gets rid of it.

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
    /// One request at a time: each looks at what is there before it changes it.
    record: Mutex<Record>,
}

/// The router can't begin.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// Its configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigFault),
    /// Its record can't be read.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl LinuxRouter {
    /// A router that keeps its record in a directory, which is made where it is not there and
    /// should be gone after a restart of the machine, as what it stands for is. `start` makes the
    /// commands of `tc` and `ip`: [`this_machine`].
    ///
    /// # Errors
    /// [`RouterError`]; nothing has been asked of the kernel yet.
    pub fn open(config: RouterConfig, directory: &Path, start: Start) -> Result<Self, RouterError> {
        config.check()?;
        let record = Record::open(directory)?;
        Ok(Self {
            config,
            kernel: Kernel::new(start),
            record: Mutex::new(record),
        })
    }

    /// Puts the router's queueing discipline at each interface at which it is to stay, so that no
    /// circuit finds packets waiting there that it would have to drop. Where that can't be done it
    /// is tried again with the first circuit, which says why it can't be; those links are returned,
    /// each with the reason.
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

    /// What is set up here belongs to one owner.
    fn owned(&self, owner: &Name) -> Result<(), DriverError> {
        let ours = &self.config.owner;
        if owner == ours {
            return Ok(());
        }
        Err(DriverError::refused(format!(
            "this router is {ours}'s, and {owner} asks: give the router another owner, or run one for each with numbers of its own"
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
            // Left by one that ended before it was done, and whose record is gone: nobody would ask
            // for it.
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
