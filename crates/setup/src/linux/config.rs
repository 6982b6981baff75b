//! What an operator says of a router.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use longhaul_circuits::network::Share;
use longhaul_circuits::time::{MAX_RATE, Rate};
use serde::{Deserialize, Serialize};

use crate::circuit::Name;
use crate::streams::Family;

/// How many parts one router holds at a time.
pub const SLOTS: u16 = 2_000;

/// The lowest rate of a link and of a part, in bit/s: below it, one packet takes longer than
/// anybody waits.
pub const MIN_RATE: Rate = 64_000;

/// Longest name of an interface (Linux, `IFNAMSIZ` without its end).
const MAX_INTERFACE_BYTES: usize = 15;

/// A router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterConfig {
    /// Whose circuits it sets up.
    pub owner: Name,
    /// Its links, by the names that circuits have for them.
    pub links: BTreeMap<Name, RouterLink>,
    /// Which numbers of the kernel are its own.
    #[serde(default)]
    pub numbers: Numbers,
}

/// A link of a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterLink {
    /// The interface by which packets leave.
    pub interface: String,
    /// The next router there: one address of each version of IP at most. Without one, packets go to
    /// the interface as they are, as on a link between two.
    #[serde(default)]
    pub gateways: Vec<IpAddr>,
    /// What the link carries, in bit/s: a little less than it does, so that queues stand here.
    pub rate: Rate,
    /// What of that circuits may have.
    #[serde(default)]
    pub reservable: Share,
    /// Whether the router's queueing discipline stays at the interface while there is no circuit.
    /// Else packets that wait there when the first circuit begins and when the last one ends are
    /// lost, which those of busy links notice.
    #[serde(default = "stays")]
    pub standing: bool,
}

const fn stays() -> bool {
    true
}

/// Which numbers of the kernel are the router's own: [`SLOTS`] from each of these. Two routers on
/// one machine need others each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Numbers {
    /// The handle of the root queueing disciplines (its major number).
    pub handle: u16,
    /// The first preference of filters.
    pub filters: u16,
    /// The first preference of policy rules: before the main table's, 32766.
    pub rules: u16,
    /// The first routing table.
    pub tables: u32,
    /// The protocol, as the kernel calls who made a rule or a route: one that no routing daemon of
    /// the machine has.
    pub protocol: u8,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            handle: 0x4c48,
            filters: 12_000,
            rules: 12_000,
            tables: 120_000,
            protocol: 176,
        }
    }
}

/// A configuration that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigFault {
    /// It is no interface's name.
    #[error(
        "link {link}: {interface:?} is no interface's name: write it as ip link shows it, up to an @"
    )]
    Interface {
        /// The link.
        link: Name,
        /// What it says.
        interface: String,
    },
    /// Two links have one interface.
    #[error(
        "links {one} and {other} are both interface {interface}: give each an interface of its own, as a VLAN's"
    )]
    Shared {
        /// One link.
        one: Name,
        /// The other.
        other: Name,
        /// The interface.
        interface: String,
    },
    /// Two next routers of one version of IP.
    #[error("link {0} has two gateways of one version of IP: leave one")]
    Gateways(Name),
    /// No such rate.
    #[error("link {link} carries {rate} bit/s: {MIN_RATE} to {MAX_RATE} are taken")]
    Rate {
        /// The link.
        link: Name,
        /// What it says, in bit/s.
        rate: Rate,
    },
    /// Numbers that the kernel has for others, or hasn't.
    #[error("{what} from {first}: take {least} to {most}")]
    Numbers {
        /// Which.
        what: &'static str,
        /// What it says.
        first: u32,
        /// The least.
        least: u32,
        /// The most.
        most: u32,
    },
}

impl RouterConfig {
    /// Whether a router can be run by it.
    ///
    /// # Errors
    /// [`ConfigFault`]: the first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigFault> {
        let mut interfaces: BTreeMap<&str, &Name> = BTreeMap::new();
        for (name, link) in &self.links {
            link.check(name)?;
            if let Some(one) = interfaces.insert(&link.interface, name) {
                return Err(ConfigFault::Shared {
                    one: one.clone(),
                    other: name.clone(),
                    interface: link.interface.clone(),
                });
            }
        }
        self.numbers.check()
    }
}

impl RouterLink {
    fn check(&self, name: &Name) -> Result<(), ConfigFault> {
        let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let interface = self.interface.as_str();
        if interface.is_empty()
            || interface.len() > MAX_INTERFACE_BYTES
            || interface.starts_with(['-', '.'])
            || !interface.chars().all(good)
        {
            return Err(ConfigFault::Interface {
                link: name.clone(),
                interface: interface.chars().take(40).collect(),
            });
        }
        if self.rate < MIN_RATE || self.rate > MAX_RATE {
            return Err(ConfigFault::Rate {
                link: name.clone(),
                rate: self.rate,
            });
        }
        let families: BTreeSet<bool> = self.gateways.iter().map(IpAddr::is_ipv4).collect();
        if families.len() < self.gateways.len() {
            return Err(ConfigFault::Gateways(name.clone()));
        }
        Ok(())
    }

    /// The next router, for packets of a version of IP.
    pub(super) fn gateway(&self, family: Family) -> Option<IpAddr> {
        let of_family = |gateway: &&IpAddr| gateway.is_ipv4() == (family == Family::V4);
        self.gateways.iter().find(of_family).copied()
    }
}

impl Numbers {
    fn check(&self) -> Result<(), ConfigFault> {
        let slots = u32::from(SLOTS);
        let bounds = [
            // 0 is nobody's, and from 8000 on the kernel gives them out.
            ("the handle", u32::from(self.handle), 1, 0x7fff),
            ("filters", u32::from(self.filters), 1, 0xffff - slots),
            // 0 is the local table's rule, 32766 the main table's.
            ("rules", u32::from(self.rules), 1, 32_766 - slots),
            // Up to 255 are the kernel's own, or in many files.
            ("tables", self.tables, 256, u32::MAX - slots),
            // Up to 4 are the kernel's own and what people type.
            ("the protocol", u32::from(self.protocol), 5, 255),
        ];
        for (what, first, least, most) in bounds {
            if first < least || first > most {
                return Err(ConfigFault::Numbers {
                    what,
                    first,
                    least,
                    most,
                });
            }
        }
        Ok(())
    }

    pub(super) const fn filter(&self, slot: u16) -> u16 {
        self.filters + slot
    }

    pub(super) const fn rule(&self, slot: u16) -> u16 {
        self.rules + slot
    }

    pub(super) fn table(&self, slot: u16) -> u32 {
        self.tables + u32::from(slot)
    }

    /// The slot of a number of the range that begins at `first`.
    pub(super) fn slot_of(first: u32, number: u32) -> Option<u16> {
        let slot = u16::try_from(number.checked_sub(first)?).ok()?;
        (slot < SLOTS).then_some(slot)
    }
}
