//! Validation of maps.

use std::collections::HashSet;
use std::fmt;

use longhaul_policy::HostPattern;
use longhaul_proto::text::printable_within;
use quantities::Rate;

use crate::distance;
use crate::model::{Depot, Direction, Host, Link, Map, Position, Reservable, Site};
use crate::names::is_name;

/// Maximum number of sites, of depots, of hosts and of links in a map.
pub const MAX_ITEMS: usize = 100_000;
/// Maximum number of addresses of one depot or host.
pub(crate) const MAX_ADDRESSES: usize = 64;
/// Maximum length of an invalid text in a message, in bytes.
const MAX_SHOWN_BYTES: usize = 80;

/// An item of a map, with its index among those of its kind, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapItem {
    /// A site.
    Site(usize),
    /// A depot.
    Depot(usize),
    /// A host.
    Host(usize),
    /// A link.
    Link(usize),
}

impl fmt::Display for MapItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, index) = match self {
            Self::Site(index) => ("site", index),
            Self::Depot(index) => ("depot", index),
            Self::Host(index) => ("host", index),
            Self::Link(index) => ("link", index),
        };
        write!(f, "{kind}[{}]", index + 1)
    }
}

/// Fault of a map.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MapFault {
    /// The name is invalid: write 1 to 128 printable characters, without blanks at the ends.
    #[error(
        "{item}: name: {name:?} is not a valid name: write 1 to 128 printable characters, with no \
         space at either end"
    )]
    Name {
        /// Item with the name.
        item: MapItem,
        /// The name, shortened and printable.
        name: String,
    },
    /// Two items of one kind have the same name: give each its own.
    #[error("{item}: name: {name:?} is used twice: give each its own name")]
    NameTwice {
        /// The second item.
        item: MapItem,
        /// The name.
        name: String,
    },
    /// Two depots have the same key: a depot may appear on a map only once.
    #[error("{item}: key: another depot has the same key: list each depot once")]
    KeyTwice {
        /// The second depot.
        item: MapItem,
    },
    /// The item names a site that is not on the map: add the site, or correct the name.
    #[error("{item}: there is no site {site:?}: add it, or correct the name")]
    NoSite {
        /// Item with the name.
        item: MapItem,
        /// The name, shortened and printable.
        site: String,
    },
    /// A link joins a site to itself: remove it.
    #[error("{item}: joins {site:?} to itself: remove it")]
    Loop {
        /// The link.
        item: MapItem,
        /// The site.
        site: String,
    },
    /// The coordinates are out of range: latitude is -90 to 90, longitude -180 to 180 degrees. The
    /// two may be in the wrong order.
    #[error("{item}: latitude is -90 to 90 and longitude -180 to 180 degrees")]
    Position {
        /// The site.
        item: MapItem,
    },
    /// A rate or number is 0: leave it out if it is unknown.
    #[error("{item}: {field}: must be more than 0: leave it out if it is not known")]
    NoRate {
        /// The item.
        item: MapItem,
        /// Name of the field.
        field: &'static str,
    },
    /// The share is not within 0 to 1: write one such as `0.5` or `"50%"`.
    #[error("{item}: reservable: a share is 0 to 1, such as 0.5 or \"50%\"")]
    Share {
        /// The link.
        item: MapItem,
    },
    /// The reservable rate exceeds the capacity: lower it.
    #[error("{item}: reservable: {reservable} is more than the link carries, {capacity}")]
    ReservableBeyondCapacity {
        /// The link.
        item: MapItem,
        /// Reservable rate.
        reservable: Rate,
        /// Capacity.
        capacity: Rate,
    },
    /// There is no address, or more than 64: write 1 to 64.
    #[error("{item}: addresses: write 1 to 64")]
    Addresses {
        /// The depot or host.
        item: MapItem,
    },
    /// An address is invalid.
    #[error("{item}: addresses: {problem}")]
    Address {
        /// The host.
        item: MapItem,
        /// Fault of the address.
        problem: String,
    },
    /// There are more items of a kind than a map may hold.
    #[error("{count} {kind}: a map holds at most {MAX_ITEMS}")]
    TooMany {
        /// Kind of the items.
        kind: &'static str,
        /// Their number.
        count: usize,
    },
}

impl MapFault {
    /// Returns the faulty item, if there is a single one.
    #[must_use]
    pub const fn item(&self) -> Option<MapItem> {
        match self {
            Self::Name { item, .. }
            | Self::NameTwice { item, .. }
            | Self::KeyTwice { item }
            | Self::NoSite { item, .. }
            | Self::Loop { item, .. }
            | Self::Position { item }
            | Self::NoRate { item, .. }
            | Self::Share { item }
            | Self::ReservableBeyondCapacity { item, .. }
            | Self::Addresses { item }
            | Self::Address { item, .. } => Some(*item),
            Self::TooMany { .. } => None,
        }
    }
}

/// Shortens a foreign text for a message.
pub(crate) fn shorten(text: &str) -> String {
    printable_within(text.as_bytes(), MAX_SHOWN_BYTES)
}

impl Map {
    /// Checks that the map is consistent.
    ///
    /// # Errors
    /// [`MapFault`] names the first fault.
    pub fn check(&self) -> Result<(), MapFault> {
        for (kind, count) in [
            ("sites", self.sites.len()),
            ("depots", self.depots.len()),
            ("hosts", self.hosts.len()),
            ("links", self.links.len()),
        ] {
            if count > MAX_ITEMS {
                return Err(MapFault::TooMany { kind, count });
            }
        }
        let mut check = MapChecker::default();
        for (index, site) in self.sites.iter().enumerate() {
            check.site(MapItem::Site(index), site)?;
        }
        for (index, link) in self.links.iter().enumerate() {
            check.link(MapItem::Link(index), link)?;
        }
        let mut keys = HashSet::new();
        for (index, depot) in self.depots.iter().enumerate() {
            check.depot(MapItem::Depot(index), depot)?;
            if !keys.insert(depot.key) {
                return Err(MapFault::KeyTwice {
                    item: MapItem::Depot(index),
                });
            }
        }
        for (index, host) in self.hosts.iter().enumerate() {
            check.host(MapItem::Host(index), host)?;
        }
        Ok(())
    }

    /// Adds all items of another map. Names of sites, depots, hosts and links must differ between
    /// the two, but links and hosts of one may name sites of the other.
    ///
    /// # Errors
    /// [`MapFault`]; the map is unchanged.
    pub fn join(&mut self, other: Self) -> Result<(), MapFault> {
        let mut joined = self.clone();
        joined.sites.extend(other.sites);
        joined.depots.extend(other.depots);
        joined.hosts.extend(other.hosts);
        joined.links.extend(other.links);
        joined.notes.extend(other.notes);
        joined.estimate_latencies();
        joined.check()?;
        *self = joined;
        Ok(())
    }

    /// Estimates missing latencies of links from the coordinates of their ends, if both have some.
    /// They are marked as estimated.
    pub fn estimate_latencies(&mut self) {
        let positions: std::collections::HashMap<&str, Position> = self
            .sites
            .iter()
            .filter_map(|site| Some((site.name.as_str(), site.position?)))
            .collect();
        for link in self.links.iter_mut().filter(|link| link.latency.is_none()) {
            let ends = (
                positions.get(link.from.as_str()),
                positions.get(link.to.as_str()),
            );
            if let (Some(from), Some(to)) = ends {
                link.latency = Some(distance::estimate_latency(*from, *to));
            }
        }
    }
}

#[derive(Default)]
struct MapChecker<'a> {
    sites: HashSet<&'a str>,
    depots: HashSet<&'a str>,
    hosts: HashSet<&'a str>,
    links: HashSet<&'a str>,
}

impl<'a> MapChecker<'a> {
    fn site(&mut self, item: MapItem, site: &'a Site) -> Result<(), MapFault> {
        check_unique_name(&mut self.sites, item, &site.name)?;
        match site.position {
            Some(position) if !position.is_valid() => Err(MapFault::Position { item }),
            _ => Ok(()),
        }
    }

    fn link(&mut self, item: MapItem, link: &'a Link) -> Result<(), MapFault> {
        check_unique_name(&mut self.links, item, &link.name)?;
        self.known_site(item, &link.from)?;
        self.known_site(item, &link.to)?;
        if link.from == link.to {
            let site = link.from.clone();
            return Err(MapFault::Loop { item, site });
        }
        check_direction(item, &link.forward)?;
        link.backward
            .as_ref()
            .map_or(Ok(()), |backward| check_direction(item, backward))
    }

    fn depot(&mut self, item: MapItem, depot: &'a Depot) -> Result<(), MapFault> {
        check_unique_name(&mut self.depots, item, &depot.name)?;
        if let Some(site) = &depot.site {
            self.known_site(item, site)?;
        }
        if !(1..=MAX_ADDRESSES).contains(&depot.addresses.len()) {
            return Err(MapFault::Addresses { item });
        }
        check_positive(item, "max_rate", depot.limits.max_rate)?;
        match depot.limits.max_sessions {
            Some(0) => Err(MapFault::NoRate {
                item,
                field: "max_sessions",
            }),
            _ => Ok(()),
        }
    }

    fn host(&mut self, item: MapItem, host: &'a Host) -> Result<(), MapFault> {
        check_unique_name(&mut self.hosts, item, &host.name)?;
        self.known_site(item, &host.site)?;
        if !(1..=MAX_ADDRESSES).contains(&host.addresses.len()) {
            return Err(MapFault::Addresses { item });
        }
        for address in &host.addresses {
            if let Err(problem) = address.parse::<HostPattern>() {
                return Err(MapFault::Address { item, problem });
            }
        }
        check_positive(item, "access", host.access)
    }

    fn known_site(&self, item: MapItem, site: &str) -> Result<(), MapFault> {
        if self.sites.contains(site) {
            return Ok(());
        }
        Err(MapFault::NoSite {
            item,
            site: shorten(site),
        })
    }
}

impl Position {
    /// Returns true if the angles are finite and in range.
    #[must_use]
    pub fn is_valid(self) -> bool {
        (-90.0..=90.0).contains(&self.latitude) && (-180.0..=180.0).contains(&self.longitude)
    }
}

fn check_unique_name<'a>(
    names: &mut HashSet<&'a str>,
    item: MapItem,
    name: &'a str,
) -> Result<(), MapFault> {
    if !is_name(name) {
        let name = shorten(name);
        return Err(MapFault::Name { item, name });
    }
    if !names.insert(name) {
        let name = name.to_owned();
        return Err(MapFault::NameTwice { item, name });
    }
    Ok(())
}

fn check_positive(item: MapItem, field: &'static str, rate: Option<Rate>) -> Result<(), MapFault> {
    match rate {
        Some(Rate::ZERO) => Err(MapFault::NoRate { item, field }),
        _ => Ok(()),
    }
}

fn check_direction(item: MapItem, direction: &Direction) -> Result<(), MapFault> {
    check_positive(item, "capacity", direction.rate())?;
    match (direction.reservable, direction.rate()) {
        (Some(Reservable::Share(share)), _) if !(0.0..=1.0).contains(&share) => {
            Err(MapFault::Share { item })
        }
        (Some(Reservable::Rate(reservable)), Some(capacity)) if reservable > capacity => {
            Err(MapFault::ReservableBeyondCapacity {
                item,
                reservable,
                capacity,
            })
        }
        _ => Ok(()),
    }
}
