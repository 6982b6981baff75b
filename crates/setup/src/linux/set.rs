//! Creation of a part's kernel objects.

use longhaul_circuits::time::Rate;

use super::LinuxRouter;
use super::config::{MIN_RATE, RouterLink, SLOTS};
use super::filter::bytecode;
use super::record::{Record, RecordError};
use super::room::{REST_CLASS, ROOT_CLASS, burst, class_of, queue, rest};
use super::snapshot::{Interface, Root, Snapshot, option};
use crate::ask::{DriverError, Reply};
use crate::circuit::{Name, Part};
use crate::streams::Family;

/// Number of bytes that a class sends before the next class at the same priority has its turn.
const QUANTUM: u32 = 60_000;

impl From<RecordError> for DriverError {
    fn from(error: RecordError) -> Self {
        Self::failed(error.to_string())
    }
}

impl LinuxRouter {
    pub(super) async fn set_up(
        &self,
        part: &Part,
        record: &mut Record,
    ) -> Result<Reply, DriverError> {
        part.check()?;
        let link = self.link(part)?;
        if part.rate < MIN_RATE {
            return Err(DriverError::refused(format!(
                "{} bit/s can't be kept: ask for {MIN_RATE} or more",
                part.rate
            )));
        }
        let mut snapshot = self.kernel.snapshot(&self.config).await?;
        if let Some(Root::Others(other)) = snapshot.interfaces.get(&part.link).map(|at| &at.root) {
            return Err(anothers(link, other));
        }
        let before = record
            .slot(&part.id)
            .map(|(slot, before)| (slot, before.clone()));
        if let Some((slot, before)) = &before
            && before == part
            && snapshot.is_whole(*slot, part)
        {
            return Ok(Reply::Done);
        }
        self.has_room(part, link, record)?;
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
        record.put(slot, part.clone())?;
        match self.make(slot, part, link, &snapshot, record).await {
            Ok(()) => Ok(Reply::Done),
            Err(error) => {
                if let Err(stays) = self.remove(slot, record).await {
                    tracing::warn!(
                        part = %part.id,
                        error = %stays,
                        "what was set up of it could not be taken back"
                    );
                }
                Err(error)
            }
        }
    }

    fn has_room(&self, part: &Part, link: &RouterLink, record: &Record) -> Result<(), DriverError> {
        let others = record
            .parts()
            .filter(|(_, other)| other.link == part.link && other.id != part.id);
        let taken: Rate = others
            .map(|(_, other)| other.rate)
            .fold(0, Rate::saturating_add);
        let reservable = link.reservable.of(link.rate);
        if part.rate > reservable {
            return Err(DriverError::refused(format!(
                "link {} has {reservable} bit/s for circuits, and {} bit/s are asked for: ask for \
                less, or reserve more of it",
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
        part: &Part,
        snapshot: &Snapshot,
        record: &Record,
    ) -> Result<u16, DriverError> {
        let used = snapshot.slots();
        let family = part.streams.family();
        let is_for_some = part.streams.source_ports.is_some() || part.streams.mark.is_some();
        let slots = if is_for_some {
            0..SLOTS / 2
        } else {
            SLOTS / 2..SLOTS
        };
        for slot in slots.filter(|slot| !used.contains(slot) && !snapshot.taken.contains(slot)) {
            let free = record.part(slot).is_none();
            if free
                && self
                    .kernel
                    .is_free(family, self.config.numbers.table(slot))
                    .await
            {
                return Ok(slot);
            }
        }
        Err(DriverError::NoRoom {
            why: format!(
                "this router holds {} such parts of circuits already: wait until one ends",
                SLOTS / 2
            ),
        })
    }

    /// Creates the missing objects of a part: class and queue, filter, route, and the rule last. So
    /// no packet is directed to an object that is not ready.
    async fn make(
        &self,
        slot: u16,
        part: &Part,
        link: &RouterLink,
        snapshot: &Snapshot,
        record: &Record,
    ) -> Result<(), DriverError> {
        let numbers = &self.config.numbers;
        let device = &link.interface;
        let handle = format!("{:x}", numbers.handle);
        let at = snapshot
            .interfaces
            .get(&part.link)
            .cloned()
            .unwrap_or_default();
        self.make_base(link, &at, reserved(record, &part.link, None))
            .await?;

        let class = class_of(numbers, slot);
        let parent = format!("{handle}:{ROOT_CLASS:x}");
        self.class(device, &parent, &class, part.rate, part.rate, 0)
            .await?;
        let verb = if at.queues.contains(&slot) {
            "change"
        } else {
            "add"
        };
        let limit = queue(part.rate);
        self.kernel
            .tc(&format!(
                "qdisc {verb} dev {device} parent {class} bfifo limit {limit}b"
            ))
            .await?;

        let family = part.streams.family();
        let protocol = match family {
            Family::V4 => "ip",
            Family::V6 => "ipv6",
        };
        let preference = numbers.filter(slot);
        let filter = format!(
            "filter replace dev {device} parent {handle}: protocol {protocol} pref {preference} \
            handle 1 bpf flowid {class} bytecode"
        );
        let bytecode = bytecode(&part.streams);
        self.kernel.run("tc", &filter, &[&bytecode]).await?;

        let (option, table, maker) = (option(family), numbers.table(slot), numbers.protocol);
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
            let preference = numbers.rule(slot);
            let selector = selector(part);
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
        circuits: Rate,
    ) -> Result<(), DriverError> {
        let device = &link.interface;
        let handle = format!("{:x}", self.config.numbers.handle);
        match &at.root {
            Root::Ours => {}
            Root::Others(other) => return Err(anothers(link, other)),
            Root::Kernels => {
                let add = format!(
                    "qdisc add dev {device} root handle {handle}: htb default {REST_CLASS:x}"
                );
                self.kernel.tc(&add).await?;
            }
        }
        let link_class = format!("{handle}:{ROOT_CLASS:x}");
        if !at.base {
            self.class(
                device,
                &format!("{handle}:"),
                &link_class,
                link.rate,
                link.rate,
                0,
            )
            .await?;
        }
        let rest = rest(link.rate, circuits);
        let rest_class = format!("{handle}:{REST_CLASS:x}");
        self.class(device, &link_class, &rest_class, rest, link.rate, 1)
            .await
    }

    async fn class(
        &self,
        device: &str,
        parent: &str,
        class: &str,
        rate: Rate,
        ceiling: Rate,
        priority: u8,
    ) -> Result<(), DriverError> {
        let (burst, ceiling_burst) = (burst(rate), burst(ceiling));
        let words = format!(
            "class replace dev {device} parent {parent} classid {class} htb prio {priority} \
             rate {rate}bit ceil {ceiling}bit \
             burst {burst}b cburst {ceiling_burst}b quantum {QUANTUM}"
        );
        self.kernel.tc(&words).await.map(drop)
    }
}

/// Returns the refusal of an interface with a foreign queueing discipline.
fn anothers(link: &RouterLink, other: &str) -> DriverError {
    DriverError::refused(format!(
        "{} has a queueing discipline of somebody else's ({other}): remove it, or leave this link \
        out",
        link.interface
    ))
}

/// Returns the rate that circuits have reserved on a link, in bit/s, without the slot `gone`.
pub(super) fn reserved(record: &Record, link: &Name, gone: Option<u16>) -> Rate {
    let parts = record.parts();
    let parts = parts.filter(|(slot, part)| part.link == *link && Some(*slot) != gone);
    parts
        .map(|(_, part)| part.rate)
        .fold(0, Rate::saturating_add)
}

/// Returns the selector of the packets in the format of `ip rule`.
fn selector(part: &Part) -> String {
    let streams = &part.streams;
    let mut text = format!("from {} to {}", streams.from, streams.to);
    if let Some(mark) = streams.mark {
        text.push_str(&format!(" fwmark {mark:#x}"));
    }
    if let Some(ports) = streams.source_ports {
        let (first, last) = (ports.first, ports.last);
        text.push_str(&format!(
            " ipproto {} sport {first}-{last}",
            ports.transport.word()
        ));
    }
    text
}
