//! `map.toml`: the operator's description of a network.
//!
//! ```toml
//! [[site]]
//! name = "chicago"
//! label = "StarLight, Chicago"                 # display name, if it is not the name
//! latitude = 41.8967                           # degrees, north and east positive; both or neither
//! longitude = -87.6161
//!
//! [[link]]
//! between = ["chicago", "amsterdam"]
//! name = "chicago - amsterdam"                 # needed if two links join the same sites
//! capacity = "100 Gbit/s"                      # each direction; unknown if left out
//! capacity_back = "10 Gbit/s"                  # from the second to the first, if it differs
//! reservable = "50%"                           # a share of the capacity, or a rate; default: half
//! reservable_back = "2 Gbit/s"                 # from the second to the first, if it differs
//! latency = "45 ms"                            # one way; default: from the coordinates
//! metric = 10                                  # cost in the network's own routing
//! one_way = false                              # if true, only from the first to the second
//!
//! [[depot]]
//! name = "starlight"
//! key = "lhk1:..."                             # as `longhaul keys show` prints it
//! site = "chicago"
//! addresses = ["depot.starlight.example:7510"] # the port may be left out
//! max_rate = "40 Gbit/s"                       # of all its sessions together, per direction
//! max_sessions = 500
//! version = "0.1.0"
//!
//! [[host]]
//! name = "archive"
//! site = "amsterdam"
//! addresses = ["*.archive.example", "192.0.2.0/24"]
//! offramp = "lhk1:...@gateway.example:7512"    # end of sessions; default: the host itself
//! access = "10 Gbit/s"                         # maximum rate of the host
//! ```

use std::ops::Range;
use std::path::{Path, PathBuf};

use longhaul_proto::text::printable;
use longhaul_proto::{DEPOT_PORT, Endpoint, OFFRAMP_PORT};
use quantities::{Rate, Time};
use serde::Deserialize;
use toml::{Spanned, Value};

use crate::check::{MapFault, MapItem};
use crate::model::{
    Capacity, CapacitySource, Depot, DepotAddress, DepotLimits, DepotSource, DepotState, Direction,
    Host, Latency, LatencySource, Link, Map, Position, Reservable, SessionEnd, Site, SiteKind, tcp,
};
use crate::names::UniqueNames;

/// Fault of a file, with its line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {problem}", printable(file.as_os_str().as_encoded_bytes()))]
pub struct FileError {
    /// The file.
    pub file: PathBuf,
    /// Line number, from 1.
    pub line: usize,
    /// Fault and remedy, in one printable line.
    pub problem: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MapText {
    #[serde(default)]
    site: Vec<Spanned<SiteText>>,
    #[serde(default)]
    link: Vec<Spanned<LinkText>>,
    #[serde(default)]
    depot: Vec<Spanned<DepotText>>,
    #[serde(default)]
    host: Vec<Spanned<HostText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteText {
    name: String,
    label: Option<String>,
    latitude: Option<f64>,
    longitude: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkText {
    between: Spanned<Vec<String>>,
    name: Option<String>,
    capacity: Option<Spanned<String>>,
    capacity_back: Option<Spanned<String>>,
    reservable: Option<Spanned<Value>>,
    reservable_back: Option<Spanned<Value>>,
    latency: Option<Spanned<String>>,
    metric: Option<u32>,
    #[serde(default)]
    one_way: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DepotText {
    name: String,
    key: Spanned<String>,
    site: Option<String>,
    addresses: Vec<Spanned<String>>,
    max_rate: Option<Spanned<String>>,
    max_sessions: Option<u32>,
    version: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostText {
    name: String,
    site: String,
    addresses: Vec<String>,
    offramp: Option<Spanned<String>>,
    access: Option<Spanned<String>>,
}

/// Parses the text of such a file. `file` is its name in errors.
///
/// # Errors
/// [`FileError`].
pub fn read(text: &str, file: &Path) -> Result<Map, FileError> {
    let mut map = Map::default();
    read_onto(&mut map, text, file)?;
    Ok(map)
}

/// Parses the text of such a file, and adds it to a map, whose sites it may name.
///
/// # Errors
/// [`FileError`]; the map is unchanged.
pub fn read_onto(map: &mut Map, text: &str, file: &Path) -> Result<(), FileError> {
    let wrong = |at: usize, problem: &str| FileError {
        file: file.to_owned(),
        line: 1 + text.get(..at).unwrap_or(text).matches('\n').count(),
        problem: printable(problem.as_bytes()),
    };
    let parsed: MapText = toml::from_str(text)
        .map_err(|error| wrong(error.span().map_or(0, |span| span.start), error.message()))?;
    let spans = ItemSpans {
        sites: parsed.site.iter().map(Spanned::span).collect(),
        links: parsed.link.iter().map(Spanned::span).collect(),
        depots: parsed.depot.iter().map(Spanned::span).collect(),
        hosts: parsed.host.iter().map(Spanned::span).collect(),
    };
    let before = [
        map.sites.len(),
        map.links.len(),
        map.depots.len(),
        map.hosts.len(),
    ];
    let read = parsed.read().map_err(|(at, problem)| wrong(at, &problem))?;
    map.join(read).map_err(|fault| {
        let at = spans.start_of(&fault, before);
        wrong(at.unwrap_or(0), &file_message(&fault, before))
    })
}

/// Formats a fault for a file, with items counted from the start of the file.
fn file_message(fault: &MapFault, [sites, links, depots, hosts]: [usize; 4]) -> String {
    let reported = fault.to_string();
    let item = match fault.item() {
        None => return reported,
        Some(MapItem::Site(index)) => MapItem::Site(index.saturating_sub(sites)),
        Some(MapItem::Link(index)) => MapItem::Link(index.saturating_sub(links)),
        Some(MapItem::Depot(index)) => MapItem::Depot(index.saturating_sub(depots)),
        Some(MapItem::Host(index)) => MapItem::Host(index.saturating_sub(hosts)),
    };
    match reported.split_once(':') {
        Some((_, problem)) if fault.item().is_some() => format!("{item}:{problem}"),
        _ => reported,
    }
}

/// Byte ranges of the items in the text.
struct ItemSpans {
    sites: Vec<Range<usize>>,
    links: Vec<Range<usize>>,
    depots: Vec<Range<usize>>,
    hosts: Vec<Range<usize>>,
}

impl ItemSpans {
    fn start_of(
        &self,
        fault: &MapFault,
        [sites, links, depots, hosts]: [usize; 4],
    ) -> Option<usize> {
        let (list, index) = match fault.item()? {
            MapItem::Site(index) => (&self.sites, index.checked_sub(sites)?),
            MapItem::Link(index) => (&self.links, index.checked_sub(links)?),
            MapItem::Depot(index) => (&self.depots, index.checked_sub(depots)?),
            MapItem::Host(index) => (&self.hosts, index.checked_sub(hosts)?),
        };
        list.get(index).map(|span| span.start)
    }
}

/// Byte offset and fault.
type FaultAt = (usize, String);

impl MapText {
    fn read(self) -> Result<Map, FaultAt> {
        let mut names = UniqueNames::default();
        let sites = self.site.into_iter().map(|site| {
            let at = site.span().start;
            read_site(site.into_inner()).map_err(|problem| (at, problem))
        });
        let sites = sites.collect::<Result<_, _>>()?;
        let links = self
            .link
            .into_iter()
            .map(|link| read_link(link.into_inner(), &mut names));
        let links = links.collect::<Result<_, _>>()?;
        let depots = self
            .depot
            .into_iter()
            .map(|depot| read_depot(depot.into_inner()));
        let hosts = self
            .host
            .into_iter()
            .map(|host| read_host(host.into_inner()));
        Ok(Map {
            sites,
            links,
            depots: depots.collect::<Result<_, _>>()?,
            hosts: hosts.collect::<Result<_, _>>()?,
            notes: Vec::new(),
        })
    }
}

fn read_site(site: SiteText) -> Result<Site, String> {
    let position = match (site.latitude, site.longitude) {
        (Some(latitude), Some(longitude)) => Some(Position {
            latitude,
            longitude,
        }),
        (None, None) => None,
        _ => return Err("latitude and longitude: write both or neither".to_owned()),
    };
    Ok(Site {
        name: site.name,
        label: site.label.map(|label| printable(label.as_bytes())),
        kind: SiteKind::Place,
        position,
        drawn: None,
    })
}

fn read_link(link: LinkText, names: &mut UniqueNames) -> Result<Link, FaultAt> {
    let [from, to] = link.between.get_ref().as_slice() else {
        let problem = "between: write two sites, such as [\"chicago\", \"amsterdam\"]";
        return Err((link.between.span().start, problem.to_owned()));
    };
    let capacity = link
        .capacity
        .as_ref()
        .map(|text| parse_rate("capacity", text))
        .transpose()?;
    let reservable = link
        .reservable
        .as_ref()
        .map(|value| read_reservable("reservable", value))
        .transpose()?;
    let forward = Direction {
        capacity: capacity.map(stated_capacity),
        reservable,
        metric: link.metric,
    };
    let backward = match (link.one_way, &link.capacity_back, &link.reservable_back) {
        (true, None, None) => None,
        (true, Some(text), _) => return Err((text.span().start, one_way_problem("capacity_back"))),
        (true, _, Some(value)) => {
            return Err((value.span().start, one_way_problem("reservable_back")));
        }
        (false, capacity_back, reservable_back) => {
            let capacity = capacity_back
                .as_ref()
                .map(|text| parse_rate("capacity_back", text))
                .transpose()?
                .or(capacity);
            let own = reservable_back
                .as_ref()
                .map(|value| read_reservable("reservable_back", value));
            Some(Direction {
                capacity: capacity.map(stated_capacity),
                reservable: own.transpose()?.or(reservable),
                metric: link.metric,
            })
        }
    };
    let latency = link.latency.as_ref().map(|text| {
        Time::with_unit(text.get_ref())
            .map(|time| Latency {
                one_way: time.0,
                source: LatencySource::Stated,
            })
            .map_err(|error| (text.span().start, format!("latency: {error}")))
    });
    Ok(Link {
        name: match link.name {
            Some(name) => name,
            None => names.claim(&format!("{from} - {to}")),
        },
        from: from.clone(),
        to: to.clone(),
        forward,
        backward,
        latency: latency.transpose()?,
        live: None,
    })
}

fn one_way_problem(field: &str) -> String {
    format!("{field}: the link is one_way: remove one of the two")
}

fn read_depot(depot: DepotText) -> Result<Depot, FaultAt> {
    let key = depot.key.get_ref().parse().map_err(|error| {
        let problem = format!(
            "key: {:?} is {error}",
            crate::check::shorten(depot.key.get_ref())
        );
        (depot.key.span().start, problem)
    })?;
    let addresses = depot.addresses.iter().map(|text| {
        Endpoint::parse_with_port(text.get_ref(), DEPOT_PORT)
            .map(|endpoint| DepotAddress {
                endpoint,
                transports: tcp(),
            })
            .map_err(|error| (text.span().start, format!("addresses: {error}")))
    });
    let max_rate = depot
        .max_rate
        .as_ref()
        .map(|text| parse_rate("max_rate", text));
    Ok(Depot {
        name: depot.name,
        key,
        site: depot.site,
        addresses: addresses.collect::<Result<_, _>>()?,
        limits: DepotLimits {
            max_rate: max_rate.transpose()?,
            max_sessions: depot.max_sessions,
        },
        version: depot.version.map(|version| printable(version.as_bytes())),
        source: DepotSource::File,
        state: DepotState::Listed,
    })
}

fn read_host(host: HostText) -> Result<Host, FaultAt> {
    let end = match &host.offramp {
        None => SessionEnd::Acceptor,
        Some(text) => parse_offramp(text.get_ref())
            .map_err(|problem| (text.span().start, format!("offramp: {problem}")))?,
    };
    let access = host.access.as_ref().map(|text| parse_rate("access", text));
    Ok(Host {
        name: host.name,
        site: host.site,
        addresses: host.addresses,
        end,
        access: access.transpose()?,
    })
}

fn parse_offramp(text: &str) -> Result<SessionEnd, String> {
    let (key, at) = match text.split_once('@') {
        Some((key, at)) => {
            let key = key
                .parse()
                .map_err(|error| format!("{:?} is {error}", crate::check::shorten(key)))?;
            (Some(key), at)
        }
        None => (None, text),
    };
    let endpoint =
        Endpoint::parse_with_port(at, OFFRAMP_PORT).map_err(|error| error.to_string())?;
    Ok(SessionEnd::Offramp { endpoint, key })
}

fn parse_rate(field: &str, text: &Spanned<String>) -> Result<Rate, FaultAt> {
    Rate::with_unit(text.get_ref())
        .map_err(|error| (text.span().start, format!("{field}: {error}")))
}

const fn stated_capacity(rate: Rate) -> Capacity {
    Capacity {
        rate,
        source: CapacitySource::Stated,
    }
}

/// Parses a share (`0.5`, `"50%"`) or a rate (`"2 Gbit/s"`).
fn read_reservable(field: &str, value: &Spanned<Value>) -> Result<Reservable, FaultAt> {
    let read = match value.get_ref() {
        Value::Float(share) => Some(Reservable::Share(*share)),
        Value::Integer(0) => Some(Reservable::Share(0.0)),
        Value::Integer(1) => Some(Reservable::Share(1.0)),
        Value::String(text) => match text.trim().strip_suffix('%') {
            Some(percent) => percent
                .trim()
                .parse()
                .ok()
                .map(|percent: f64| Reservable::Share(percent / 100.0)),
            None => Rate::with_unit(text).ok().map(Reservable::Rate),
        },
        _ => None,
    };
    read.ok_or_else(|| {
        let problem =
            format!("{field}: write a share such as \"50%\", or a rate such as \"2 Gbit/s\"");
        (value.span().start, problem)
    })
}
