//! Whether a map is one.

use std::collections::HashSet;
use std::fmt;

use longhaul_policy::HostPattern;
use longhaul_proto::text::printable_within;
use quantities::Rate;

use crate::distance;
use crate::model::{Depot, Direction, Host, Link, Map, Position, Reservable, Site};
use crate::names::is_name;

/// Most sites, depots, hosts and links of a map, each.
pub const MAX_ITEMS: usize = 100_000;
/// Most addresses of one depot or host.
pub(crate) const MAX_ADDRESSES: usize = 64;
/// Of a text that is refused, so many bytes are shown.
const MAX_SHOWN_BYTES: usize = 80;

/// Something on a map: what it is, and its place among its like, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// A site.
    Site(usize),
    /// A depot.
    Depot(usize),
    /// A host.
    Host(usize),
    /// A link.
    Link(usize),
}

impl fmt::Display for Item {
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

/// What is wrong with a map.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MapFault {
    /// A name that is none: write another.
    #[error(
        "{item}: name: {name:?} is no name: write 1 to 128 printable characters, without blanks at the ends"
    )]
    Name {
        /// Whose.
        item: Item,
        /// It, cut off and printable.
        name: String,
    },
    /// Two of the same kind have one name: give each its own.
    #[error("{item}: name: {name:?} is the name of another one, too: give each its own")]
    NameTwice {
        /// The second one.
        item: Item,
        /// The name.
        name: String,
    },
    /// Two depots have one key: a depot stands on a map once.
    #[error("{item}: key: another depot has the same key: a depot stands on a map once")]
    KeyTwice {
        /// The second one.
        item: Item,
    },
    /// It names a site that there is not: add the site, or mend the name.
    #[error("{item}: there is no site {site:?}: add it, or mend the name")]
    NoSite {
        /// What names it.
        item: Item,
        /// The name, cut off and printable.
        site: String,
    },
    /// A link joins a site to itself: remove it.
    #[error("{item}: joins {site:?} to itself: remove it")]
    Loop {
        /// The link.
        item: Item,
        /// The site.
        site: String,
    },
    /// Coordinates that there are not.
    #[error("{item}: latitude is -90 to 90 and longitude -180 to 180 degrees")]
    Position {
        /// The site.
        item: Item,
    },
    /// A rate of nothing.
    #[error("{item}: {field}: must be more than 0: leave it out where it is not known")]
    NoRate {
        /// What has it.
        item: Item,
        /// Which one.
        field: &'static str,
    },
    /// A share beyond 0 to 1.
    #[error("{item}: reservable: a share is 0 to 1, such as 0.5 or \"50%\"")]
    Share {
        /// The link.
        item: Item,
    },
    /// More may be reserved than there is.
    #[error("{item}: reservable: {reservable} is more than the link carries, {capacity}")]
    ReservableBeyondCapacity {
        /// The link.
        item: Item,
        /// What may be reserved.
        reservable: Rate,
        /// What there is.
        capacity: Rate,
    },
    /// No address, or more than 64.
    #[error("{item}: addresses: write 1 to 64")]
    Addresses {
        /// The depot or host.
        item: Item,
    },
    /// An address that is none.
    #[error("{item}: addresses: {problem}")]
    Address {
        /// The host.
        item: Item,
        /// What is wrong with it.
        problem: String,
    },
    /// More of a kind than a map may hold.
    #[error("{count} {kind}: a map holds {MAX_ITEMS} at most")]
    TooMany {
        /// Which kind.
        kind: &'static str,
        /// How many.
        count: usize,
    },
}

impl MapFault {
    /// What is wrong, if it is one thing.
    #[must_use]
    pub const fn item(&self) -> Option<Item> {
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

/// A text of others, for a message.
pub(crate) fn shown(text: &str) -> String {
    printable_within(text.as_bytes(), MAX_SHOWN_BYTES)
}

impl Map {
    /// Whether all of it fits together.
    ///
    /// # Errors
    /// [`MapFault`]: the first thing that does not.
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
        let mut check = Check::default();
        for (index, site) in self.sites.iter().enumerate() {
            check.site(Item::Site(index), site)?;
        }
        for (index, link) in self.links.iter().enumerate() {
            check.link(Item::Link(index), link)?;
        }
        let mut keys = HashSet::new();
        for (index, depot) in self.depots.iter().enumerate() {
            check.depot(Item::Depot(index), depot)?;
            if !keys.insert(depot.key) {
                return Err(MapFault::KeyTwice {
                    item: Item::Depot(index),
                });
            }
        }
        for (index, host) in self.hosts.iter().enumerate() {
            check.host(Item::Host(index), host)?;
        }
        Ok(())
    }

    /// Takes in another map, all of which comes behind what there is. Sites, depots, hosts and
    /// links of the two have different names, but links and hosts of one may name sites of the
    /// other.
    ///
    /// # Errors
    /// [`MapFault`]: then it is as it was.
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

    /// Gives each link without a latency one from the coordinates of its ends, where both have
    /// some; it is marked as estimated.
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
                link.latency = Some(distance::estimate(*from, *to));
            }
        }
    }
}

#[derive(Default)]
struct Check<'a> {
    sites: HashSet<&'a str>,
    depots: HashSet<&'a str>,
    hosts: HashSet<&'a str>,
    links: HashSet<&'a str>,
}

impl<'a> Check<'a> {
    fn site(&mut self, item: Item, site: &'a Site) -> Result<(), MapFault> {
        own_name(&mut self.sites, item, &site.name)?;
        match site.position {
            Some(position) if !position.exists() => Err(MapFault::Position { item }),
            _ => Ok(()),
        }
    }

    fn link(&mut self, item: Item, link: &'a Link) -> Result<(), MapFault> {
        own_name(&mut self.links, item, &link.name)?;
        self.known_site(item, &link.from)?;
        self.known_site(item, &link.to)?;
        if link.from == link.to {
            let site = link.from.clone();
            return Err(MapFault::Loop { item, site });
        }
        direction(item, &link.forward)?;
        link.backward
            .as_ref()
            .map_or(Ok(()), |backward| direction(item, backward))
    }

    fn depot(&mut self, item: Item, depot: &'a Depot) -> Result<(), MapFault> {
        own_name(&mut self.depots, item, &depot.name)?;
        if let Some(site) = &depot.site {
            self.known_site(item, site)?;
        }
        if !(1..=MAX_ADDRESSES).contains(&depot.addresses.len()) {
            return Err(MapFault::Addresses { item });
        }
        positive(item, "max_rate", depot.limits.max_rate)?;
        match depot.limits.max_sessions {
            Some(0) => Err(MapFault::NoRate {
                item,
                field: "max_sessions",
            }),
            _ => Ok(()),
        }
    }

    fn host(&mut self, item: Item, host: &'a Host) -> Result<(), MapFault> {
        own_name(&mut self.hosts, item, &host.name)?;
        self.known_site(item, &host.site)?;
        if !(1..=MAX_ADDRESSES).contains(&host.addresses.len()) {
            return Err(MapFault::Addresses { item });
        }
        for address in &host.addresses {
            if let Err(problem) = address.parse::<HostPattern>() {
                return Err(MapFault::Address { item, problem });
            }
        }
        positive(item, "access", host.access)
    }

    fn known_site(&self, item: Item, site: &str) -> Result<(), MapFault> {
        if self.sites.contains(site) {
            return Ok(());
        }
        Err(MapFault::NoSite {
            item,
            site: shown(site),
        })
    }
}

impl Position {
    /// Whether there is such a point: no angle beyond its range, none that is no number.
    #[must_use]
    pub fn exists(self) -> bool {
        (-90.0..=90.0).contains(&self.latitude) && (-180.0..=180.0).contains(&self.longitude)
    }
}

fn own_name<'a>(names: &mut HashSet<&'a str>, item: Item, name: &'a str) -> Result<(), MapFault> {
    if !is_name(name) {
        let name = shown(name);
        return Err(MapFault::Name { item, name });
    }
    if !names.insert(name) {
        let name = name.to_owned();
        return Err(MapFault::NameTwice { item, name });
    }
    Ok(())
}

fn positive(item: Item, field: &'static str, rate: Option<Rate>) -> Result<(), MapFault> {
    match rate {
        Some(Rate::ZERO) => Err(MapFault::NoRate { item, field }),
        _ => Ok(()),
    }
}

fn direction(item: Item, direction: &Direction) -> Result<(), MapFault> {
    positive(item, "capacity", direction.rate())?;
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
