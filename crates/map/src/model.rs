//! Items of a map.

use std::time::Duration;

use longhaul_proto::{Endpoint, PublicKey};
use quantities::Rate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::live::LiveLink;
use crate::{Moment, text_form};

/// Default share of a link's rate that may be reserved.
pub const DEFAULT_RESERVABLE_SHARE: f64 = 0.5;

/// Sites, depots, hosts and links. [`Map::check`] tells if they are consistent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Map {
    /// Places that links join.
    pub sites: Vec<Site>,
    /// Relays at the sites.
    pub depots: Vec<Depot>,
    /// Ends of transfers.
    pub hosts: Vec<Host>,
    /// Connections between sites.
    pub links: Vec<Link>,
    /// Notes on what was left out or assumed when the map was read from another format, one per
    /// line.
    pub notes: Vec<String>,
}

/// A place that links join.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Name, unique among sites; 1 to 128 printable characters.
    #[schema(example = "chicago")]
    pub name: String,
    /// Display name, if it is not the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Kind of the site.
    #[serde(default)]
    pub kind: SiteKind,
    /// Geographic position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// Position in a drawing of the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<Drawn>,
}

/// Kind of a site.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SiteKind {
    /// A place with machines or routers.
    #[default]
    Place,
    /// One router.
    Router,
    /// Joint of a link with more than two ends (a hyperedge), not a place.
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
    /// Distance to the right.
    pub x: f64,
    /// Distance down.
    pub y: f64,
}

/// A connection between two sites. Two links may join the same sites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Name, unique among links.
    #[schema(example = "chicago - amsterdam")]
    pub name: String,
    /// Site at the first end.
    pub from: String,
    /// Site at the second end.
    pub to: String,
    /// Direction from `from` to `to`.
    pub forward: Direction,
    /// Direction from `to` to `from`; the link is one-way if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward: Option<Direction>,
    /// One-way time of light from end to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// State in the running network, if the controller follows it. It is not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveLink>,
}

/// One direction of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Direction {
    /// Capacity; unknown if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// Reservable part of the capacity; half if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservable: Option<Reservable>,
    /// Cost in the network's own routing; less is preferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// Capacity of one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// Bit/s; more than 0.
    #[serde(rename = "rate_bps", with = "text_form::bits_per_second")]
    #[schema(value_type = f64, example = 1e11)]
    pub rate: Rate,
    /// Source of the figure.
    #[serde(default)]
    pub source: CapacitySource,
}

/// Source of a capacity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CapacitySource {
    /// The capacity was stated.
    #[default]
    Stated,
    /// Only a bound was stated: `>10Gbps`, `1-10Gbps`, or the reservable rate. The rate is the
    /// bound, or the lower one of two.
    Bound,
    /// The capacity was not stated, and was assumed by the reader of the map.
    Assumed,
}

/// Reservable part of one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reservable {
    /// A share of the capacity, 0 to 1.
    Share(f64),
    /// A rate in bit/s, whatever the capacity.
    #[serde(rename = "rate_bps", with = "text_form::bits_per_second")]
    #[schema(value_type = f64)]
    Rate(Rate),
}

/// Time of light along a link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Seconds, one way.
    #[serde(rename = "one_way_seconds", with = "text_form::seconds")]
    #[schema(value_type = f64, example = 0.045)]
    pub one_way: Duration,
    /// Source of the figure.
    #[serde(default)]
    pub source: LatencySource,
}

/// Source of a latency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LatencySource {
    /// The latency was stated.
    #[default]
    Stated,
    /// The latency is derived from the coordinates of the ends: the great circle, at 0.66 of the
    /// speed of light. It is probably too low, because cables make detours.
    Estimated,
}

/// A relay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Depot {
    /// Name, unique among depots.
    #[schema(example = "starlight")]
    pub name: String,
    /// Public key, which identifies the depot.
    #[serde(with = "text_form::text")]
    #[schema(
        value_type = String,
        example = "lhk1:aeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaq"
    )]
    pub key: PublicKey,
    /// Site of the depot; unknown if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Addresses on which it listens, the best first.
    pub addresses: Vec<DepotAddress>,
    /// Limits of what it relays.
    #[serde(default)]
    pub limits: DepotLimits,
    /// Version of its software, as reported by the depot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Source of the entry.
    #[serde(default)]
    pub source: DepotSource,
    /// Present state.
    #[serde(default)]
    pub state: DepotState,
}

/// Address on which a depot listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DepotAddress {
    /// Host and port.
    #[serde(with = "text_form::text")]
    #[schema(value_type = String, example = "depot.example.org:7510")]
    pub endpoint: Endpoint,
    /// Transports that it accepts there.
    #[serde(default = "tcp")]
    pub transports: Vec<Transport>,
}

pub(crate) fn tcp() -> Vec<Transport> {
    vec![Transport::Tcp]
}

/// Transport of a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP.
    Tcp,
}

/// Limits of what a depot relays; those left out are unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DepotLimits {
    /// Rate of all sessions together, per direction, in bit/s.
    #[serde(
        default,
        rename = "max_rate_bps",
        with = "text_form::optional_bits_per_second",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<f64>)]
    pub max_rate: Option<Rate>,
    /// Number of concurrent sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<u32>,
}

/// Source of a depot's entry on the map.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DepotSource {
    /// A file.
    #[default]
    File,
    /// The depot's own registration.
    Registered,
    /// Both: the file describes the depot, and its registration shows its state.
    Both,
}

/// State of a depot. Times are seconds since the Unix epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum DepotState {
    /// The depot is in a file and has never reported; it is assumed to be available.
    #[default]
    Listed,
    /// The depot has a valid registration.
    Live {
        /// Time of the last registration.
        heard: Moment,
        /// End of its validity.
        until: Moment,
    },
    /// The depot's registration has expired.
    Stale {
        /// Time of the last registration.
        heard: Moment,
        /// End of its validity.
        until: Moment,
    },
}

impl DepotState {
    /// Returns true if routes may pass the depot.
    #[must_use]
    pub const fn is_usable(self) -> bool {
        !matches!(self, Self::Stale { .. })
    }
}

/// End of transfers: a machine, or many behind a pattern.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Name, unique among hosts.
    #[schema(example = "archive")]
    pub name: String,
    /// Site of the host.
    pub site: String,
    /// Names and networks that address it, as in `routes.toml`: `dtn.example.org`,
    /// `*.archive.example`, `192.0.2.0/24`.
    pub addresses: Vec<String>,
    /// End of sessions to the host.
    #[serde(default)]
    pub end: SessionEnd,
    /// Maximum rate at which it can send and receive, in bit/s.
    #[serde(
        default,
        rename = "access_bps",
        with = "text_form::optional_bits_per_second",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<f64>)]
    pub access: Option<Rate>,
}

/// End of a session to a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "at", rename_all = "lowercase")]
pub enum SessionEnd {
    /// The host itself, which speaks the session protocol.
    #[default]
    Acceptor,
    /// An off-ramp, which connects to the host.
    Offramp {
        /// Address on which it listens.
        #[serde(with = "text_form::text")]
        #[schema(value_type = String, example = "gateway.example:7512")]
        endpoint: Endpoint,
        /// Key of the off-ramp; the one among the known servers if it is left out.
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
    /// Returns the site of this name.
    #[must_use]
    pub fn site(&self, name: &str) -> Option<&Site> {
        self.sites.iter().find(|site| site.name == name)
    }

    /// Returns the depot of this name.
    #[must_use]
    pub fn depot(&self, name: &str) -> Option<&Depot> {
        self.depots.iter().find(|depot| depot.name == name)
    }

    /// Returns the host of this name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }
}

impl Direction {
    /// Returns the capacity, if it is known.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.capacity.map(|capacity| capacity.rate)
    }

    /// Returns the reservable rate, if it is known. It never exceeds the capacity.
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
