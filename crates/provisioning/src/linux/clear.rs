//! Removal of a part's kernel objects.

use super::LinuxRouter;
use super::config::{MAX_SLOTS, RouterLink};
use super::record::SlotRecord;
use super::room::class_id;
use super::set::reserved_rate;
use super::snapshot::{Interface, RootDiscipline, family_option};
use crate::ask::{DriverError, DriverReply};
use crate::circuit::PartId;
use crate::streams::IpFamily;

impl LinuxRouter {
    pub(super) async fn tear_down(
        &self,
        id: &PartId,
        record: &mut SlotRecord,
    ) -> Result<DriverReply, DriverError> {
        let slot = record.find_part(id).map(|(slot, _)| slot);
        // A number that is in the record by now belongs to a part with an id.
        let unknown = id
            .unknown_slot()
            .filter(|slot| *slot < MAX_SLOTS && record.part(*slot).is_none());
        if let Some(slot) = slot.or(unknown) {
            self.remove(slot, record).await?;
        }
        Ok(DriverReply::Done)
    }

    /// Removes all kernel objects of a slot, the rule first, and then its record. The root is
    /// removed with the last class unless it is to stay.
    pub(super) async fn remove(
        &self,
        slot: u16,
        record: &mut SlotRecord,
    ) -> Result<(), DriverError> {
        let numbers = &self.config.numbers;
        let snapshot = self.kernel.snapshot(&self.config).await?;
        let (table, maker) = (numbers.table_number(slot), numbers.protocol);
        for family in [IpFamily::V4, IpFamily::V6] {
            let option = family_option(family);
            if snapshot.rules.contains(&(family, slot)) {
                let preference = numbers.rule_preference(slot);
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
                self.clear_interface(slot, link, at).await?;
            }
        }
        // If the record entry were removed first, a crash in between would leave a root that nobody
        // looks for.
        self.settle_bases(record, Some(slot)).await?;
        Ok(record.remove(slot)?)
    }

    async fn clear_interface(
        &self,
        slot: u16,
        link: &RouterLink,
        at: &Interface,
    ) -> Result<(), DriverError> {
        let numbers = &self.config.numbers;
        let device = &link.interface;
        if at.filters.contains(&slot) {
            let preference = numbers.filter_preference(slot);
            self.kernel
                .tc(&format!(
                    "filter del dev {device} parent {:x}: pref {preference}",
                    numbers.handle
                ))
                .await?;
        }
        if at.classes.contains(&slot) {
            let class = class_id(numbers, slot);
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
        record: &SlotRecord,
        gone: Option<u16>,
    ) -> Result<(), DriverError> {
        let snapshot = self.kernel.snapshot(&self.config).await?;
        for (name, link) in &self.config.links {
            let Some(at) = snapshot
                .interfaces
                .get(name)
                .filter(|at| at.root == RootDiscipline::Own)
            else {
                continue;
            };
            if at.is_idle() && !link.standing {
                let (device, handle) = (&link.interface, self.config.numbers.handle);
                self.kernel
                    .tc(&format!("qdisc del dev {device} root handle {handle:x}:"))
                    .await?;
            } else {
                self.make_base(link, at, reserved_rate(record, name, gone))
                    .await?;
            }
        }
        Ok(())
    }
}
