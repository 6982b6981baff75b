//! Removal of a part's kernel objects.

use super::LinuxRouter;
use super::config::{RouterLink, SLOTS};
use super::record::Record;
use super::room::class_of;
use super::set::reserved;
use super::snapshot::{Interface, Root, option};
use crate::ask::{DriverError, Reply};
use crate::circuit::PartId;
use crate::streams::Family;

impl LinuxRouter {
    pub(super) async fn tear_down(
        &self,
        id: &PartId,
        record: &mut Record,
    ) -> Result<Reply, DriverError> {
        let slot = record.slot(id).map(|(slot, _)| slot);
        // A number that is in the record by now belongs to a part with an id.
        let unknown = id
            .unknown_number()
            .filter(|slot| *slot < SLOTS && record.part(*slot).is_none());
        if let Some(slot) = slot.or(unknown) {
            self.remove(slot, record).await?;
        }
        Ok(Reply::Done)
    }

    /// Removes all kernel objects of a slot, the rule first, and then its record. The root is
    /// removed with the last class unless it is to stay.
    pub(super) async fn remove(&self, slot: u16, record: &mut Record) -> Result<(), DriverError> {
        let numbers = &self.config.numbers;
        let snapshot = self.kernel.snapshot(&self.config).await?;
        let (table, maker) = (numbers.table(slot), numbers.protocol);
        for family in [Family::V4, Family::V6] {
            let option = option(family);
            if snapshot.rules.contains(&(family, slot)) {
                let preference = numbers.rule(slot);
                self.kernel
                    .ip(&format!(
                        "{option} rule del pref {preference} table {table} protocol {maker}"
                    ))
                    .await?;
            }
            if snapshot.routes.contains(&(family, slot)) {
                self.kernel
                    .ip(&format!("{option} route flush table {table} proto {maker}"))
                    .await?;
            }
        }
        for (name, link) in &self.config.links {
            if let Some(at) = snapshot.interfaces.get(name) {
                self.clear(slot, link, at).await?;
            }
        }
        // If the record entry were removed first, a crash in between would leave a root that nobody
        // looks for.
        self.settle_bases(record, Some(slot)).await?;
        Ok(record.remove(slot)?)
    }

    async fn clear(&self, slot: u16, link: &RouterLink, at: &Interface) -> Result<(), DriverError> {
        let numbers = &self.config.numbers;
        let device = &link.interface;
        if at.filters.contains(&slot) {
            let preference = numbers.filter(slot);
            self.kernel
                .tc(&format!(
                    "filter del dev {device} parent {:x}: pref {preference}",
                    numbers.handle
                ))
                .await?;
        }
        if at.classes.contains(&slot) {
            let class = class_of(numbers, slot);
            self.kernel
                .tc(&format!("class del dev {device} classid {class}"))
                .await?;
        }
        Ok(())
    }

    /// Gives the free rate to packets without a circuit. Restores the default queueing discipline
    /// of an interface without circuits, unless the router's is to stay.
    pub(super) async fn settle_bases(
        &self,
        record: &Record,
        gone: Option<u16>,
    ) -> Result<(), DriverError> {
        let snapshot = self.kernel.snapshot(&self.config).await?;
        for (name, link) in &self.config.links {
            let Some(at) = snapshot
                .interfaces
                .get(name)
                .filter(|at| at.root == Root::Ours)
            else {
                continue;
            };
            if at.is_idle() && !link.standing {
                let (device, handle) = (&link.interface, self.config.numbers.handle);
                self.kernel
                    .tc(&format!("qdisc del dev {device} root handle {handle:x}:"))
                    .await?;
            } else {
                self.make_base(link, at, reserved(record, name, gone))
                    .await?;
            }
        }
        Ok(())
    }
}
