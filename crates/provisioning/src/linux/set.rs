//! Creation of a part's kernel objects.

use longhaul_circuits::time::BitsPerSecond;

use super::LinuxRouter;
use super::config::{MAX_SLOTS, MIN_RATE, RouterLink};
use super::filter::bytecode;
use super::record::{RecordError, SlotRecord};
use super::room::{REST_CLASS, ROOT_CLASS, burst_bytes, class_id, queue_bytes, unreserved_rate};
use super::snapshot::{Interface, KernelSnapshot, RootDiscipline, family_option};
use crate::ask::{DriverError, DriverReply};
use crate::circuit::{CircuitPart, EntityName};
use crate::streams::{IpFamily, StreamSelector};

/// Number of bytes that a class sends before the next class at the same priority has its turn.
const QUANTUM_BYTES: u32 = 60_000;

impl From<RecordError> for DriverError {
    fn from(error: RecordError) -> Self {
        Self::failed(error.to_string())
    }
}

impl LinuxRouter {
    pub(super) async fn set_up(
        &self,
        part: &CircuitPart,
        record: &mut SlotRecord,
    ) -> Result<DriverReply, DriverError> {
        part.check()?;
        let link = self.link(part)?;
        if part.rate < MIN_RATE {
            return Err(DriverError::refused(format!(
                "{} bit/s cannot be guaranteed: ask for at least {MIN_RATE} bit/s",
                part.rate
            )));
        }
        let mut snapshot = self.kernel.snapshot(&self.config).await?;
        if let Some(RootDiscipline::Foreign(other)) =
            snapshot.interfaces.get(&part.link).map(|at| &at.root)
        {
            return Err(foreign_discipline(link, other));
        }
        let before = record
            .find_part(&part.id)
            .map(|(slot, before)| (slot, before.clone()));
        if let Some((slot, before)) = &before
            && before == part
            && snapshot.is_whole(*slot, part)
        {
            return Ok(DriverReply::Done);
        }
        self.check_bandwidth(part, link, record)?;
        let slot = match before {
            Some((slot, before)) => {
                if before.link != part.link || before.streams != part.streams {
                    self.remove(slot, record).await?;
                    snapshot = self.kernel.snapshot(&self.config).await?;
                }
                slot
            }
            None => self.free_slot(part, &snapshot, record).await?,
        };
        record.insert(slot, part.clone())?;
        match self
            .create_objects(slot, part, link, &snapshot, record)
            .await
        {
            Ok(()) => Ok(DriverReply::Done),
            Err(error) => {
                if let Err(stays) = self.remove(slot, record).await {
                    tracing::warn!(
                        part = %part.id,
                        error = %stays,
                        "cannot undo the part of the circuit that was set up"
                    );
                }
                Err(error)
            }
        }
    }

    fn check_bandwidth(
        &self,
        part: &CircuitPart,
        link: &RouterLink,
        record: &SlotRecord,
    ) -> Result<(), DriverError> {
        let others = record
            .parts()
            .filter(|(_, other)| other.link == part.link && other.id != part.id);
        let taken: BitsPerSecond = others
            .map(|(_, other)| other.rate)
            .fold(0, BitsPerSecond::saturating_add);
        let reservable = link.reservable.apply_to(link.rate);
        if part.rate > reservable {
            return Err(DriverError::refused(format!(
                "link {} has {reservable} bit/s for circuits, and {} bit/s are requested: ask for \
                 less, or make more of it reservable",
                part.link, part.rate
            )));
        }
        let left = reservable.saturating_sub(taken);
        if part.rate > left {
            return Err(DriverError::no_room(&part.link, part.rate, left));
        }
        Ok(())
    }

    /// Returns the first slot that neither the router nor anyone else uses.
    ///
    /// Filters and rules apply in the order of slots. Therefore parts for only some of the streams
    /// between two ends come before those for all of them.
    async fn free_slot(
        &self,
        part: &CircuitPart,
        snapshot: &KernelSnapshot,
        record: &SlotRecord,
    ) -> Result<u16, DriverError> {
        let used = snapshot.slots();
        let family = part.streams.family();
        let StreamSelector {
            source_ports,
            dscp,
            mark,
            ..
        } = part.streams;
        let is_for_some = source_ports.is_some() || dscp.is_some() || mark.is_some();
        let slots = if is_for_some {
            0..MAX_SLOTS / 2
        } else {
            MAX_SLOTS / 2..MAX_SLOTS
        };
        for slot in
            slots.filter(|slot| !used.contains(slot) && !snapshot.foreign_slots.contains(slot))
        {
            let free = record.part(slot).is_none();
            if free
                && self
                    .kernel
                    .is_free(family, self.config.numbers.table_number(slot))
                    .await
            {
                return Ok(slot);
            }
        }
        Err(DriverError::NoRoom {
            why: format!(
                "this router has {} parts of circuits already: wait until one ends",
                MAX_SLOTS / 2
            ),
        })
    }

    /// Creates the missing objects of a part: class and queue, filter, route, and the rule last. So
    /// no packet is directed to an object that is not ready.
    async fn create_objects(
        &self,
        slot: u16,
        part: &CircuitPart,
        link: &RouterLink,
        snapshot: &KernelSnapshot,
        record: &SlotRecord,
    ) -> Result<(), DriverError> {
        let numbers = &self.config.numbers;
        let device = &link.interface;
        let handle = format!("{:x}", numbers.handle);
        let at = snapshot
            .interfaces
            .get(&part.link)
            .cloned()
            .unwrap_or_default();
        self.make_base(link, &at, reserved_rate(record, &part.link, None))
            .await?;

        let class = class_id(numbers, slot);
        let parent = format!("{handle}:{ROOT_CLASS:x}");
        self.set_class(device, &parent, &class, part.rate, part.rate, 0)
            .await?;
        let verb = if at.queues.contains(&slot) {
            "change"
        } else {
            "add"
        };
        let limit = queue_bytes(part.rate);
        self.kernel
            .tc(&format!(
                "qdisc {verb} dev {device} parent {class} bfifo limit {limit}b"
            ))
            .await?;

        let family = part.streams.family();
        let protocol = match family {
            IpFamily::V4 => "ip",
            IpFamily::V6 => "ipv6",
        };
        let preference = numbers.filter_preference(slot);
        let filter = format!(
            "filter replace dev {device} parent {handle}: protocol {protocol} pref {preference} \
            handle 1 bpf flowid {class} bytecode"
        );
        let bytecode = bytecode(&part.streams);
        self.kernel.run("tc", &filter, &[&bytecode]).await?;

        let (option, table, maker) = (
            family_option(family),
            numbers.table_number(slot),
            numbers.protocol,
        );
        let via = link
            .gateway(family)
            .map(|gateway| format!("via {gateway} "));
        let via = via.unwrap_or_default();
        self.kernel
            .ip(&format!(
                "{option} route replace default {via}dev {device} table {table} proto {maker}"
            ))
            .await?;
        if !snapshot.rules.contains(&(family, slot)) {
            let preference = numbers.rule_preference(slot);
            let selector = rule_selector(part);
            self.kernel
                .ip(&format!(
                    "{option} rule add pref {preference} {selector} lookup {table} protocol {maker}"
                ))
                .await?;
        }
        Ok(())
    }

    /// Creates the root and its own two classes: that of the link, and that of packets without a
    /// circuit. The rate of the latter follows the circuits' rates.
    pub(super) async fn make_base(
        &self,
        link: &RouterLink,
        at: &Interface,
        circuits: BitsPerSecond,
    ) -> Result<(), DriverError> {
        let device = &link.interface;
        let handle = format!("{:x}", self.config.numbers.handle);
        match &at.root {
            RootDiscipline::Own => {}
            RootDiscipline::Foreign(other) => return Err(foreign_discipline(link, other)),
            RootDiscipline::KernelDefault => {
                let add = format!(
                    "qdisc add dev {device} root handle {handle}: htb default {REST_CLASS:x}"
                );
                self.kernel.tc(&add).await?;
            }
        }
        let link_class = format!("{handle}:{ROOT_CLASS:x}");
        if !at.has_base_classes {
            self.set_class(
                device,
                &format!("{handle}:"),
                &link_class,
                link.rate,
                link.rate,
                0,
            )
            .await?;
        }
        let rest = unreserved_rate(link.rate, circuits);
        let rest_class = format!("{handle}:{REST_CLASS:x}");
        self.set_class(device, &link_class, &rest_class, rest, link.rate, 1)
            .await
    }

    async fn set_class(
        &self,
        device: &str,
        parent: &str,
        class: &str,
        rate: BitsPerSecond,
        ceiling: BitsPerSecond,
        priority: u8,
    ) -> Result<(), DriverError> {
        let (burst, ceiling_burst) = (burst_bytes(rate), burst_bytes(ceiling));
        let words = format!(
            "class replace dev {device} parent {parent} classid {class} htb prio {priority} \
             rate {rate}bit ceil {ceiling}bit \
             burst {burst}b cburst {ceiling_burst}b quantum {QUANTUM_BYTES}"
        );
        self.kernel.tc(&words).await.map(drop)
    }
}

/// Returns the refusal of an interface with a foreign queueing discipline.
fn foreign_discipline(link: &RouterLink, other: &str) -> DriverError {
    DriverError::refused(format!(
        "{} has a queueing discipline that this router did not set ({other}): remove it, or leave \
         this link out",
        link.interface
    ))
}

/// Returns the rate that circuits have reserved on a link, in bit/s, without the slot `gone`.
pub(super) fn reserved_rate(
    record: &SlotRecord,
    link: &EntityName,
    gone: Option<u16>,
) -> BitsPerSecond {
    let parts = record.parts();
    let parts = parts.filter(|(slot, part)| part.link == *link && Some(*slot) != gone);
    parts
        .map(|(_, part)| part.rate)
        .fold(0, BitsPerSecond::saturating_add)
}

/// Returns the selector of the packets in the format of `ip rule`. It leaves out the code point,
/// which rules can match only since Linux 6.13. So all packets with these addresses, ports and mark
/// take the link, and only those with the code point get the rate.
fn rule_selector(part: &CircuitPart) -> String {
    let streams = &part.streams;
    let mut text = format!("from {} to {}", streams.from, streams.to);
    if let Some(mark) = streams.mark {
        text.push_str(&format!(" fwmark {mark:#x}"));
    }
    if let Some(ports) = streams.source_ports {
        let (first, last) = (ports.first, ports.last);
        text.push_str(&format!(
            " ipproto {} sport {first}-{last}",
            ports.transport.name()
        ));
    }
    text
}
