//! The operator's configuration of a router.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use longhaul_circuits::network::LinkShare;
use longhaul_circuits::time::{BitsPerSecond, MAX_RATE};
use serde::{Deserialize, Serialize};

use crate::circuit::EntityName;
use crate::streams::IpFamily;

/// Maximum number of parts of one router at a time.
pub const MAX_SLOTS: u16 = 2_000;

/// Minimum rate of a link and of a part, in bit/s. Below it, one packet takes unreasonably long.
pub const MIN_RATE: BitsPerSecond = 64_000;

/// Maximum length of an interface name (Linux, `IFNAMSIZ` without the terminator).
const MAX_INTERFACE_BYTES: usize = 15;

/// Configuration of a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterConfig {
    /// Owner of the circuits that it sets up.
    pub owner: EntityName,
    /// Links, by the names that circuits use for them.
    pub links: BTreeMap<EntityName, RouterLink>,
    /// Kernel numbers of the router.
    #[serde(default)]
    pub numbers: KernelNumbers,
}

/// A link of a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterLink {
    /// Interface by which packets leave.
    pub interface: String,
    /// Next router: at most one address of each IP version. Without one, packets are sent directly,
    /// as on a point-to-point link.
    #[serde(default)]
    pub gateways: Vec<IpAddr>,
    /// Rate of the link in bit/s. It should be a little less than the real rate, so that queues
    /// build up here.
    pub rate: BitsPerSecond,
    /// Share of the rate that circuits may reserve.
    #[serde(default)]
    pub reservable: LinkShare,
    /// If true, the router's queueing discipline stays at the interface while there is no circuit.
    /// Otherwise, packets that wait there are lost when the first circuit begins and when the last
    /// one ends, which affects busy links.
    #[serde(default = "stays")]
    pub standing: bool,
}

const fn stays() -> bool {
    true
}

/// Kernel numbers of the router: [`MAX_SLOTS`] numbers from each of these. Two routers on one
/// machine need different ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelNumbers {
    /// Handle of the root queueing disciplines (major number).
    pub handle: u16,
    /// First preference of filters.
    pub filters: u16,
    /// First preference of policy rules. It must be before that of the main table, 32766.
    pub rules: u16,
    /// First routing table.
    pub tables: u32,
    /// Protocol, by which the kernel identifies the origin of a rule or route. No routing daemon of
    /// the machine may use it.
    pub protocol: u8,
}

impl Default for KernelNumbers {
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

/// Fault of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigFault {
    /// The interface name is invalid: write it as `ip link` shows it, up to an `@`.
    #[error(
        "link {link}: {interface:?} is not the name of an interface: write it as ip link shows it, \
         up to the @"
    )]
    Interface {
        /// The link.
        link: EntityName,
        /// Configured interface.
        interface: String,
    },
    /// Two links share one interface: give each its own, such as a VLAN's.
    #[error(
        "links {one} and {other} are both interface {interface}: give each its own interface, such \
         as a VLAN"
    )]
    Shared {
        /// The first link.
        one: EntityName,
        /// The second link.
        other: EntityName,
        /// The interface.
        interface: String,
    },
    /// A link has two gateways of one IP version: keep one.
    #[error("link {0} has two gateways of the same IP version: keep one")]
    Gateways(EntityName),
    /// The rate is out of range: use 64 kbit/s to [`MAX_RATE`].
    #[error("link {link} carries {rate} bit/s: {MIN_RATE} to {MAX_RATE} bit/s are supported")]
    Rate {
        /// The link.
        link: EntityName,
        /// Configured rate in bit/s.
        rate: BitsPerSecond,
    },
    /// A range of kernel numbers overlaps reserved ones, or is out of bounds: choose another start.
    #[error("{what} from {first}: use {least} to {most}")]
    Numbers {
        /// Kind of number.
        what: &'static str,
        /// Configured first number.
        first: u32,
        /// Minimum.
        least: u32,
        /// Maximum.
        most: u32,
    },
}

impl RouterConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// [`ConfigFault`] names the first fault.
    pub fn check(&self) -> Result<(), ConfigFault> {
        let mut interfaces: BTreeMap<&str, &EntityName> = BTreeMap::new();
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
    fn check(&self, name: &EntityName) -> Result<(), ConfigFault> {
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

    /// Returns the next router for packets of an IP version.
    pub(super) fn gateway(&self, family: IpFamily) -> Option<IpAddr> {
        let of_family = |gateway: &&IpAddr| gateway.is_ipv4() == (family == IpFamily::V4);
        self.gateways.iter().find(of_family).copied()
    }
}

impl KernelNumbers {
    fn check(&self) -> Result<(), ConfigFault> {
        let slots = u32::from(MAX_SLOTS);
        let bounds = [
            // 0 is unassigned, and the kernel allocates handles from 8000 on.
            ("the handle", u32::from(self.handle), 1, 0x7fff),
            ("filters", u32::from(self.filters), 1, 0xffff - slots),
            // 0 is the rule of the local table, 32766 that of the main table.
            ("rules", u32::from(self.rules), 1, 32_766 - slots),
            // Numbers up to 255 are the kernel's own, or named in many configurations.
            ("tables", self.tables, 256, u32::MAX - slots),
            // Numbers up to 4 are the kernel's own, and those of manual commands.
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

    pub(super) const fn filter_preference(&self, slot: u16) -> u16 {
        self.filters + slot
    }

    pub(super) const fn rule_preference(&self, slot: u16) -> u16 {
        self.rules + slot
    }

    pub(super) fn table_number(&self, slot: u16) -> u32 {
        self.tables + u32::from(slot)
    }

    /// Returns the slot of a number in the range that begins at `first`.
    pub(super) fn slot_of(first: u32, number: u32) -> Option<u16> {
        let slot = u16::try_from(number.checked_sub(first)?).ok()?;
        (slot < MAX_SLOTS).then_some(slot)
    }
}
