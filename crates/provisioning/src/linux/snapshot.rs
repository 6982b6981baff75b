//! Present kernel objects with the router's numbers.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::config::{KernelNumbers, RouterConfig};
use super::kernel::Kernel;
use super::room::{REST_CLASS, ROOT_CLASS, class_id, slot_of_class};
use crate::ask::{Counters, DriverError};
use crate::circuit::{CircuitPart, EntityName};
use crate::streams::IpFamily;

/// Root queueing discipline of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum RootDiscipline {
    /// The kernel's default, because none was configured.
    #[default]
    KernelDefault,
    /// The router's own.
    Own,
    /// A foreign one.
    Foreign(String),
}

/// Objects at an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Interface {
    pub root: RootDiscipline,
    /// If true, the root's own two classes are present.
    pub has_base_classes: bool,
    /// Slots that have a class.
    pub classes: BTreeSet<u16>,
    /// Slots whose class has its own queue.
    pub queues: BTreeSet<u16>,
    /// Slots that have a filter.
    pub filters: BTreeSet<u16>,
    /// If true, there are objects below the root that the router does not create.
    pub has_foreign_objects: bool,
}

/// All objects of the router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KernelSnapshot {
    pub interfaces: BTreeMap<EntityName, Interface>,
    pub rules: BTreeSet<(IpFamily, u16)>,
    pub routes: BTreeSet<(IpFamily, u16)>,
    /// Slots whose preference or table is used by foreign rules.
    pub foreign_slots: BTreeSet<u16>,
}

impl Interface {
    /// Returns true if the root is the router's own, and nothing uses it.
    pub fn is_idle(&self) -> bool {
        self.root == RootDiscipline::Own
            && self.classes.is_empty()
            && self.filters.is_empty()
            && !self.has_foreign_objects
    }
}

impl KernelSnapshot {
    /// Returns true if a part is complete.
    pub fn is_whole(&self, slot: u16, part: &CircuitPart) -> bool {
        let family = part.streams.family();
        self.rules.contains(&(family, slot))
            && self.routes.contains(&(family, slot))
            && self.interfaces.get(&part.link).is_some_and(|interface| {
                interface.root == RootDiscipline::Own
                    && interface.has_base_classes
                    && [&interface.classes, &interface.queues, &interface.filters]
                        .iter()
                        .all(|slots| slots.contains(&slot))
            })
    }

    /// Returns the slots that have any object.
    pub fn slots(&self) -> BTreeSet<u16> {
        let interfaces = self.interfaces.values();
        let at_interfaces =
            interfaces.flat_map(|interface| interface.classes.union(&interface.filters));
        let routing = self.rules.union(&self.routes).map(|(_, slot)| slot);
        at_interfaces.chain(routing).copied().collect()
    }
}

impl Kernel {
    /// Reads all interfaces of the router, and all rules and routes.
    pub async fn snapshot(&self, config: &RouterConfig) -> Result<KernelSnapshot, DriverError> {
        let numbers = &config.numbers;
        let mut snapshot = KernelSnapshot::default();
        for (name, link) in &config.links {
            let device = &link.interface;
            let mut interface = Interface::default();
            let disciplines = self.tc(&format!("qdisc show dev {device}")).await?;
            read_disciplines(&disciplines, numbers, &mut interface);
            if interface.root == RootDiscipline::Own {
                let classes = self.tc(&format!("class show dev {device}")).await?;
                read_classes(&classes, numbers, &mut interface);
                let filters = format!("filter show dev {device} parent {:x}:", numbers.handle);
                read_filters(&self.tc(&filters).await?, numbers, &mut interface);
            }
            snapshot.interfaces.insert(name.clone(), interface);
        }
        for (family, option) in [(IpFamily::V4, "-4"), (IpFamily::V6, "-6")] {
            let rules = self.ip(&format!("-j -N {option} rule show")).await;
            let routes = format!(
                "-j -N {option} route show table all proto {}",
                numbers.protocol
            );
            let rules = match (family, rules) {
                // A kernel without IPv6 has no IPv6 rules.
                (IpFamily::V6, Err(DriverError::Failed { why }))
                    if why.contains("not supported") =>
                {
                    continue;
                }
                (_, rules) => rules?,
            };
            read_rules(&rules, numbers, family, &mut snapshot)?;
            read_routes(&self.ip(&routes).await?, numbers, family, &mut snapshot)?;
        }
        Ok(snapshot)
    }

    /// Reads the counters of a slot's class, or `None` if there is no class.
    pub async fn counters(
        &self,
        numbers: &KernelNumbers,
        device: &str,
        slot: u16,
    ) -> Result<Option<Counters>, DriverError> {
        let classes = self.tc(&format!("-s class show dev {device}")).await?;
        Ok(read_counters(&classes, &class_id(numbers, slot)))
    }

    /// Returns true if a routing table is empty.
    pub async fn is_free(&self, family: IpFamily, table: u32) -> bool {
        let option = family_option(family);
        // A table that does not exist is an error, and free.
        let routes = self
            .ip(&format!("-j -N {option} route show table {table}"))
            .await;
        routes.map_or(true, |routes| {
            rows(&routes).is_ok_and(|rows| rows.is_empty())
        })
    }
}

/// Returns the option of `ip` for an IP version.
pub(super) const fn family_option(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "-4",
        IpFamily::V6 => "-6",
    }
}

fn word_after<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == key)?;
    words.next()
}

/// Parses `MAJOR:MINOR` in hexadecimal digits. The minor number may be missing.
fn read_handle(text: &str) -> Option<(u16, u16)> {
    let (major, minor) = text.split_once(':')?;
    let number = |digits: &str| match digits {
        "" => Some(0),
        digits => u16::from_str_radix(digits, 16).ok(),
    };
    Some((number(major)?, number(minor)?))
}

/// Parses lines such as `qdisc htb 4c48: root refcnt 2 ...` and
/// `qdisc bfifo 8001: parent 4c48:10 limit ...`.
fn read_disciplines(text: &str, numbers: &KernelNumbers, interface: &mut Interface) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some("qdisc"), Some(kind), Some(handle), Some(place)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let Some((major, _)) = read_handle(handle) else {
            continue;
        };
        match place {
            "root" if major == 0 => {}
            "root" if major == numbers.handle && kind == "htb" => {
                interface.root = RootDiscipline::Own
            }
            "root" => interface.root = RootDiscipline::Foreign(format!("{kind} {handle}")),
            "parent" => {
                let parent = words.next().and_then(read_handle);
                let Some((_, minor)) = parent.filter(|(major, _)| *major == numbers.handle) else {
                    continue;
                };
                match slot_of_class(minor) {
                    Some(slot) => drop(interface.queues.insert(slot)),
                    // Perhaps a choice of the operator for the packets without a circuit.
                    None => interface.has_foreign_objects = true,
                }
            }
            _ => {}
        }
    }
}

/// Parses lines such as `class htb 4c48:10 parent 4c48:1 leaf 8004: prio 0 rate ...`. Each begins
/// with the number of its root.
fn read_classes(text: &str, numbers: &KernelNumbers, interface: &mut Interface) {
    let mut own = 0;
    for line in text.lines() {
        let Some((major, minor)) = word_after(line, "htb").and_then(read_handle) else {
            continue;
        };
        if !line.starts_with("class") || major != numbers.handle {
            continue;
        }
        match (minor, slot_of_class(minor)) {
            (ROOT_CLASS | REST_CLASS, _) => own += 1,
            (_, Some(slot)) => drop(interface.classes.insert(slot)),
            (_, None) => interface.has_foreign_objects = true,
        }
    }
    interface.has_base_classes = own == 2;
}

/// Parses lines such as `filter protocol ip pref 12000 bpf chain 0 handle 0x1 flowid 4c48:10 ...`.
fn read_filters(text: &str, numbers: &KernelNumbers, interface: &mut Interface) {
    for line in text.lines().filter(|line| line.starts_with("filter")) {
        let Some(preference) = word_after(line, "pref").and_then(|word| word.parse().ok()) else {
            continue;
        };
        match KernelNumbers::slot_of(numbers.filters.into(), preference) {
            // The first line of a preference only says that it is used.
            Some(slot) => match word_after(line, "flowid") {
                Some(class) if class == class_id(numbers, slot) => {
                    interface.filters.insert(slot);
                }
                Some(_) => interface.has_foreign_objects = true,
                None => {}
            },
            None => interface.has_foreign_objects = true,
        }
    }
}

/// Parses the statistics of a class, in the line after its own:
/// `Sent 710 bytes 5 pkt (dropped 0, overlimits 0 requeues 0)`.
fn read_counters(text: &str, class: &str) -> Option<Counters> {
    let mut lines = text.lines();
    lines.find(|line| line.starts_with("class") && word_after(line, "htb") == Some(class))?;
    let line = lines.next()?;
    let number = |key: &str| word_after(line, key)?.trim_end_matches(',').parse().ok();
    Some(Counters {
        bytes: number("Sent")?,
        packets: number("bytes")?,
        drops: number("(dropped")?,
    })
}

/// Parses the rows of a JSON answer. Some versions print nothing for an empty list.
fn rows(text: &str) -> Result<Vec<Value>, DriverError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(text).map_err(|error| {
        DriverError::failed(format!(
            "cannot understand the output of ip ({error}): update iproute2"
        ))
    })
}

fn number(row: &Value, key: &str) -> Option<u32> {
    match row.get(key)? {
        Value::Number(number) => u32::try_from(number.as_u64()?).ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn read_rules(
    text: &str,
    numbers: &KernelNumbers,
    family: IpFamily,
    snapshot: &mut KernelSnapshot,
) -> Result<(), DriverError> {
    for row in rows(text)? {
        let preference = number(&row, "priority");
        let slot =
            preference.and_then(|number| KernelNumbers::slot_of(numbers.rules.into(), number));
        let table =
            number(&row, "table").and_then(|table| KernelNumbers::slot_of(numbers.tables, table));
        let ours = number(&row, "protocol") == Some(numbers.protocol.into());
        match slot {
            Some(slot) if ours && table == Some(slot) => {
                snapshot.rules.insert((family, slot));
            }
            _ => snapshot.foreign_slots.extend(slot.into_iter().chain(table)),
        }
    }
    Ok(())
}

fn read_routes(
    text: &str,
    numbers: &KernelNumbers,
    family: IpFamily,
    snapshot: &mut KernelSnapshot,
) -> Result<(), DriverError> {
    for row in rows(text)? {
        let slot =
            number(&row, "table").and_then(|table| KernelNumbers::slot_of(numbers.tables, table));
        snapshot.routes.extend(slot.map(|slot| (family, slot)));
    }
    Ok(())
}
