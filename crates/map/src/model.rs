//! What is on a map.

use std::time::Duration;

use longhaul_proto::{Endpoint, PublicKey};
use quantities::Rate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Moment, text_form};

/// Of the rate that a link carries, so much may be reserved where nothing else is said.
pub const DEFAULT_RESERVABLE_SHARE: f64 = 0.5;

/// Sites, depots, hosts and links. Whether they fit together says [`Map::check`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Map {
    /// Places that links join.
    pub sites: Vec<Site>,
    /// Relays at them.
    pub depots: Vec<Depot>,
    /// Where transfers begin and end.
    pub hosts: Vec<Host>,
    /// What joins sites.
    pub links: Vec<Link>,
    /// What was left out or assumed when the map was read from another format, a line each.
    pub notes: Vec<String>,
}

/// A place that links join.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Its own among sites; 1 to 128 printable characters.
    #[schema(example = "chicago")]
    pub name: String,
    /// What people call it, where that is not its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What it is.
    #[serde(default)]
    pub kind: SiteKind,
    /// Where it lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// Where a drawing of the network has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<Drawn>,
}

/// What a site is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SiteKind {
    /// A place with machines or routers.
    #[default]
    Place,
    /// One router.
    Router,
    /// No place: where a link of more than two ends is joined (a hyperedge).
    Junction,
}

/// A point on the Earth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Degrees, north positive, -90 to 90.
    #[schema(minimum = -90, maximum = 90)]
    pub latitude: f64,
    /// Degrees, east positive, -180 to 180.
    #[schema(minimum = -180, maximum = 180)]
    pub longitude: f64,
}

/// A point of a drawing, in its own units: x to the right, y down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Drawn {
    /// To the right.
    pub x: f64,
    /// Down.
    pub y: f64,
}

/// What joins two sites. Two links may join the same two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its own among links.
    #[schema(example = "chicago - amsterdam")]
    pub name: String,
    /// The site at one end.
    pub from: String,
    /// The site at the other.
    pub to: String,
    /// What it carries from `from` to `to`.
    pub forward: Direction,
    /// What it carries the other way; nothing if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward: Option<Direction>,
    /// How long light takes from end to end, one way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

/// One direction of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Direction {
    /// What it carries; not known if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// What of that may be reserved; half if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservable: Option<Reservable>,
    /// What the network's own routing counts it as; less is preferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// What a direction of a link carries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// Bit/s; more than 0.
    #[serde(rename = "rate_bps", with = "text_form::bits_per_second")]
    #[schema(value_type = f64, example = 1e11)]
    pub rate: Rate,
    /// How it is known.
    #[serde(default)]
    pub source: CapacitySource,
}

/// How a capacity is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CapacitySource {
    /// It was stated.
    #[default]
    Stated,
    /// Only a bound was: `>10Gbps`, `1-10Gbps`, or what may be reserved. The rate is the bound, the
    /// lower one of two.
    Bound,
    /// Nothing was: whoever read the map assumed it.
    Assumed,
}

/// What of a direction of a link may be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reservable {
    /// A share of its capacity, 0 to 1.
    Share(f64),
    /// A rate, whatever the capacity; in bit/s.
    #[serde(rename = "rate_bps", with = "text_form::bits_per_second")]
    #[schema(value_type = f64)]
    Rate(Rate),
}

/// How long light takes along a link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Seconds, one way.
    #[serde(rename = "one_way_seconds", with = "text_form::seconds")]
    #[schema(value_type = f64, example = 0.045)]
    pub one_way: Duration,
    /// How it is known.
    #[serde(default)]
    pub source: LatencySource,
}

/// How a latency is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LatencySource {
    /// It was stated.
    #[default]
    Stated,
    /// From the coordinates of its ends: the great circle, at 0.66 of the speed of light. Cables
    /// make detours: it is more likely too little.
    Estimated,
}

/// A relay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Depot {
    /// Its own among depots.
    #[schema(example = "starlight")]
    pub name: String,
    /// Its key: who it is.
    #[serde(with = "text_form::text")]
    #[schema(value_type = String, example = "lhk1:aeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaq")]
    pub key: PublicKey,
    /// The site where it stands; not known if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Where it listens, the best first.
    pub addresses: Vec<DepotAddress>,
    /// What it takes on.
    #[serde(default)]
    pub limits: DepotLimits,
    /// The version of its software, as it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Who put it on the map.
    #[serde(default)]
    pub source: DepotSource,
    /// Whether it is there.
    #[serde(default)]
    pub state: DepotState,
}

/// Where a depot listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DepotAddress {
    /// Host and port.
    #[serde(with = "text_form::text")]
    #[schema(value_type = String, example = "depot.example.org:7510")]
    pub endpoint: Endpoint,
    /// The transports that it accepts there.
    #[serde(default = "tcp")]
    pub transports: Vec<Transport>,
}

pub(crate) fn tcp() -> Vec<Transport> {
    vec![Transport::Tcp]
}

/// A transport of a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP.
    Tcp,
}

/// What a depot takes on; without a bound where one is left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DepotLimits {
    /// For all its sessions together, each way, in bit/s.
    #[serde(
        default,
        rename = "max_rate_bps",
        with = "text_form::optional_bits_per_second",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<f64>)]
    pub max_rate: Option<Rate>,
    /// Sessions at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<u32>,
}

/// Who put a depot on the map.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DepotSource {
    /// A file.
    #[default]
    File,
    /// It registered itself.
    Registered,
    /// Both: the file says what it is, its registration whether it is there.
    Both,
}

/// Whether a depot is there. Times are seconds since the Unix epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum DepotState {
    /// It stands in a file and has never reported: taken to be there.
    #[default]
    Listed,
    /// It registered, and that holds.
    Live {
        /// When it last did.
        heard: Moment,
        /// Until when that holds.
        until: Moment,
    },
    /// It registered, and that holds no more.
    Stale {
        /// When it last did.
        heard: Moment,
        /// Until when that held.
        until: Moment,
    },
}

impl DepotState {
    /// Whether routes may lead through it.
    #[must_use]
    pub const fn usable(self) -> bool {
        !matches!(self, Self::Stale { .. })
    }
}

/// Where transfers begin and end: a machine, or many behind a pattern.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its own among hosts.
    #[schema(example = "archive")]
    pub name: String,
    /// The site where it stands.
    pub site: String,
    /// Names and networks by which it is asked for, as in `routes.toml`: `dtn.example.org`,
    /// `*.archive.example`, `192.0.2.0/24`.
    pub addresses: Vec<String>,
    /// Where sessions to it end.
    #[serde(default)]
    pub end: SessionEnd,
    /// What it can send and take, in bit/s.
    #[serde(
        default,
        rename = "access_bps",
        with = "text_form::optional_bits_per_second",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<f64>)]
    pub access: Option<Rate>,
}

/// Where the session to a host ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "at", rename_all = "lowercase")]
pub enum SessionEnd {
    /// At the host, which speaks the session protocol.
    #[default]
    Acceptor,
    /// At an off-ramp, which connects to the host.
    Offramp {
        /// Where it listens.
        #[serde(with = "text_form::text")]
        #[schema(value_type = String, example = "gateway.example:7512")]
        endpoint: Endpoint,
        /// Its key; as it stands among the known servers if it is left out.
        #[serde(
            default,
            with = "text_form::optional_text",
            skip_serializing_if = "Option::is_none"
        )]
        #[schema(value_type = Option<String>)]
        key: Option<PublicKey>,
    },
}

impl Map {
    /// The site of this name.
    #[must_use]
    pub fn site(&self, name: &str) -> Option<&Site> {
        self.sites.iter().find(|site| site.name == name)
    }

    /// The depot of this name.
    #[must_use]
    pub fn depot(&self, name: &str) -> Option<&Depot> {
        self.depots.iter().find(|depot| depot.name == name)
    }

    /// The host of this name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }
}

impl Direction {
    /// What it carries, where that is known.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.capacity.map(|capacity| capacity.rate)
    }

    /// What may be reserved of it, where that is known: never more than it carries.
    #[must_use]
    pub fn reservable_rate(&self) -> Option<Rate> {
        let share = |share: f64| {
            let rate = self.rate()?.bits_per_second();
            Some(Rate::nearest(rate * share.clamp(0.0, 1.0)))
        };
        match self.reservable {
            None => share(DEFAULT_RESERVABLE_SHARE),
            Some(Reservable::Share(of)) => share(of),
            Some(Reservable::Rate(rate)) => match self.rate() {
                Some(capacity) if capacity < rate => Some(capacity),
                _ => Some(rate),
            },
        }
    }
}
