//! Reservations of bandwidth: requests, grants, and refusals with counter-offers.
//!
//! `POST /reservations` takes a [`ReservationRequest`]. A request that is granted is answered with
//! 201 and [`Reserved`]: paths with rates, for each piece of time. One that does not fit is
//! answered with 409 and a [`RefusedProblem`]: the links that are full, until when, and offers that
//! are granted when requested immediately.
//!
//! A reservation has three states, as in the NSI Connection Service 2 (GFD.212): reservation,
//! provisioning and life cycle. With `hold`, bandwidth is held for a minute and lost unless the
//! reservation is committed (`POST /reservations/{id}/commit`). Without it, both happen at once.
//!
//! Its *circuit* is the configuration of the nodes on its paths. Nodes recognise its streams by the
//! addresses of its ends. If it has several paths at once, or requests `pin`, each path has source
//! ports of its own.

mod constraints;
mod refusal;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::domains::DomainReservation;
use crate::{End, Moment};

pub use longhaul_reservation_terms::{
    Disjoint, LifeState, Pace, Preference, ProvisionState, ReserveState,
};

pub use constraints::{MAX_DSCP, NamedPath, OptionConflict, PacketFilter, RouteConstraints};
pub use refusal::{
    ConstraintCause, FullLink, NotLeadingProblem, Offer, Offers, Proof, Refusal, RefusalCause,
    RefusedProblem,
};

/// Rate or volume to reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Wish {
    /// One rate throughout the window, over paths that stay the same.
    Rate {
        /// Rate, in bit/s.
        #[schema(minimum = 1, example = 5_000_000_000_u64)]
        rate_bps: u64,
    },
    /// A volume by the end of the window, at rates and over paths that may change.
    Volume {
        /// Volume, in bytes.
        #[schema(minimum = 1)]
        bytes: u64,
        /// Maximum rate that the ends can use, in bit/s; unlimited if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_most_bps: Option<u64>,
        /// Distribution of the volume over the window.
        #[serde(default)]
        pace: Pace,
    },
}

/// Repetition of a reservation at other times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Recurrence {
    /// Recurrence rule (RFC 5545, section 3.3.10), with COUNT or UNTIL. The window of the request
    /// is the first occurrence.
    #[schema(max_length = 1000, example = "FREQ=WEEKLY;BYDAY=MO,WE;COUNT=10")]
    pub rule: String,
    /// Time zone for the rule's days and hours, by its IANA name; UTC if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100, example = "America/Denver")]
    pub time_zone: Option<String>,
}

/// Request for a reservation: `POST /reservations`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReservationRequest {
    /// Source of the bytes: a host, a depot or a site of the map.
    #[schema(value_type = String, min_length = 1, max_length = 253)]
    pub from: End,
    /// Destination of the bytes.
    #[schema(value_type = String, min_length = 1, max_length = 253)]
    pub to: End,
    /// Rate or volume to reserve.
    pub wish: Wish,
    /// Start of the window; now, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub start_ms: Option<Moment>,
    /// End of the window, exclusive. For a volume, its deadline.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// Maximum number of paths at once.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 8, default = 1)]
    pub paths: u32,
    /// Elements that the paths must not share.
    #[serde(default)]
    pub disjoint: Disjoint,
    /// Choice among several possible paths.
    #[serde(default)]
    pub preference: Preference,
    /// Sites that paths must avoid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub avoid_sites: Vec<String>,
    /// Links that paths must avoid, in either direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub avoid_links: Vec<String>,
    /// Further constraints on each path.
    #[serde(default, skip_serializing_if = "RouteConstraints::is_empty")]
    pub constraints: RouteConstraints,
    /// Packets that use the reservation; all between its ends, if left out.
    #[serde(default, skip_serializing_if = "PacketFilter::is_empty")]
    pub filter: PacketFilter,
    /// Repetitions. Either all occurrences are granted, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recurrence: Option<Recurrence>,
    /// If true, the reservation is only held until it is committed or a minute has passed.
    #[serde(default)]
    pub hold: bool,
    /// If true, its paths are set up in its window without a further request, once it is committed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub provision: bool,
    /// If true, its streams get source ports of their own even if one path would not need them, so
    /// that other streams between the ends stay out of it. The answer names the ports.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pin: bool,
    /// Address or prefix that its streams come from, if the map knows several for that end:
    /// `192.0.2.1`, `192.0.2.0/24`. It must be one that the map lists for the end; the controller's
    /// operator may name any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 49, example = "192.0.2.1")]
    pub from_address: Option<String>,
    /// Address or prefix that its streams go to, by the same rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 49, example = "198.51.100.1")]
    pub to_address: Option<String>,
    /// Purpose, for people to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub description: Option<String>,
    /// Permission of another key, the principal, to make this request in its name: `lhd1:` and
    /// base32 digits. The principal owns the reservation, and its rights and limits apply. The
    /// caller, its delegate, may see and cancel it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1200)]
    pub delegation: Option<String>,
}

impl ReservationRequest {
    /// Creates a request for one path from now on, without further options.
    #[must_use]
    pub fn new(from: End, to: End, wish: Wish, end_ms: Moment) -> Self {
        Self {
            from,
            to,
            wish,
            start_ms: None,
            end_ms,
            paths: one(),
            disjoint: Disjoint::default(),
            preference: Preference::default(),
            avoid_sites: Vec::new(),
            avoid_links: Vec::new(),
            constraints: RouteConstraints::default(),
            filter: PacketFilter::default(),
            recurrence: None,
            hold: false,
            provision: false,
            pin: false,
            from_address: None,
            to_address: None,
            description: None,
            delegation: None,
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

const fn one() -> u32 {
    1
}

/// Change of a reservation: `PATCH /reservations/{id}`. Fields that are left out stay the same. A
/// volume counts from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReservationChange {
    /// New rate or volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wish: Option<Wish>,
    /// New start of the window, not earlier than now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub start_ms: Option<Moment>,
    /// New end of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub end_ms: Option<Moment>,
    /// New maximum number of paths at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 8)]
    pub paths: Option<u32>,
    /// Elements that the paths must not share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disjoint: Option<Disjoint>,
    /// Choice among several possible paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<Preference>,
    /// If true, the change is only held, in addition to what is promised, until it is committed or
    /// a minute has passed.
    pub hold: bool,
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkDirection {
    /// Name of the link on the map.
    pub link: String,
    /// Site that the direction leads from.
    pub from: String,
    /// Site that the direction leads to.
    pub to: String,
}

/// Range of source ports, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourcePortRange {
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
}

/// Traffic of a path, as counted by the first node on it that is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Carried {
    /// Bytes forwarded since the path was set up, including IP headers and possibly link headers.
    pub bytes: u64,
    /// Packets forwarded.
    pub packets: u64,
    /// Packets that exceeded the rate and were dropped.
    pub drops: u64,
    /// Time of the count.
    #[schema(value_type = u64)]
    pub at_ms: Moment,
}

/// Reserved path with its rate and traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservedPath {
    /// Reserved rate, in bit/s.
    pub rate_bps: u64,
    /// Links of the path, in order.
    pub links: Vec<LinkDirection>,
    /// TCP source ports by which the path's streams are recognised: bind the sockets of this path
    /// to them. If left out, all streams between the ends' addresses belong to the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<SourcePortRange>,
    /// Traffic of the path, where it is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Carried>,
}

/// Paths over one period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Piece {
    /// Start of the period.
    #[schema(value_type = u64)]
    pub start_ms: Moment,
    /// End of the period, exclusive.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// Paths of the period, the one with the highest rate first.
    pub paths: Vec<ReservedPath>,
}

/// States of a reservation (GFD.212, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservationState {
    /// State of the reservation or of a change to it.
    pub reserve: ReserveState,
    /// Provisioning state; left out before the reservation was committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provision: Option<ProvisionState>,
    /// Life-cycle state.
    pub life: LifeState,
}

/// State of a reservation's circuit on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CircuitStanding {
    /// Nothing is to be set up yet, or the time is between two pieces.
    Waiting,
    /// Part of it is still missing.
    SettingUp,
    /// All of it is set up, as far as its nodes have drivers.
    SetUp,
    /// It could not be set up, or it broke within its window.
    Failed,
    /// Parts of it may still be set up.
    TearingDown,
    /// Nothing of it can be set up: no node on its paths has a driver, or the addresses of its ends
    /// are unknown.
    Unmanaged,
}

/// Circuit of a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Circuit {
    /// State of the circuit.
    pub standing: CircuitStanding,
    /// Sites on its paths without a configured driver. Traffic that leaves them is best effort.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_set_up: Vec<String>,
    /// Reason why nothing can be set up, or what is missing, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Grant with which sessions use one path of a reservation at the depots on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathGrant {
    /// The path.
    pub path: ReservedPath,
    /// Names of the depots that accept the grant.
    pub depots: Vec<String>,
    /// Route over the path's depots in the direction of the bytes, in the form of `--route`: one
    /// depot of each site that has any, as hops that must follow directly, with their keys. Left
    /// out if no depot of the path has an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Grant for the key that asked, signed by the controller: `lhg1:` and base32 digits. `None` if
    /// the path has no depot of the map, or begins more than a minute from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
}

/// Grants of the paths of a reservation: `GET /reservations/{id}/grants`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathGrants {
    /// Start of the grants' validity.
    #[schema(value_type = u64)]
    pub start_ms: Moment,
    /// End of the grants' validity, at most a minute from now or from their start. Ask again before
    /// it; depots renew the grants that are in use by themselves.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// One grant for each path.
    pub items: Vec<PathGrant>,
}

/// Bandwidth that is held but not promised yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldReservation {
    /// Time when the hold expires.
    #[schema(value_type = u64)]
    pub until_ms: Moment,
    /// Rate or volume.
    pub wish: Wish,
    /// Start of the window.
    #[schema(value_type = u64)]
    pub start_ms: Moment,
    /// End of the window.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// Paths that would be promised.
    pub pieces: Vec<Piece>,
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reservation {
    /// ID of the reservation.
    pub id: u64,
    /// ID of the first reservation of its series, if it recurs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<u64>,
    /// Owner: a key, or `operator`.
    pub owner: String,
    /// Display name of the owner.
    pub owner_name: String,
    /// Source of the bytes.
    #[schema(value_type = String)]
    pub from: End,
    /// Destination of the bytes.
    #[schema(value_type = String)]
    pub to: End,
    /// Rate or volume.
    pub wish: Wish,
    /// Start of the window.
    #[schema(value_type = u64)]
    pub start_ms: Moment,
    /// End of the window, exclusive.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// Maximum number of paths at once.
    pub paths: u32,
    /// Elements that the paths must not share.
    pub disjoint: Disjoint,
    /// Choice among several possible paths.
    pub preference: Preference,
    /// Further constraints on each path.
    #[serde(default, skip_serializing_if = "RouteConstraints::is_empty")]
    pub constraints: RouteConstraints,
    /// Packets that use the reservation; all between its ends, if left out.
    #[serde(default, skip_serializing_if = "PacketFilter::is_empty")]
    pub filter: PacketFilter,
    /// Purpose, for people to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Delegate that requested it in the owner's name, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegate: Option<Delegate>,
    /// States of the reservation.
    pub state: ReservationState,
    /// Promised paths, ordered by time; empty before the reservation was committed.
    pub pieces: Vec<Piece>,
    /// Bandwidth that is held in addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldReservation>,
    /// Links that have failed or are no longer on the map, or where more is promised than may be
    /// reserved since the map changed. The promise stays recorded; a change of the reservation
    /// plans it again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub impaired: Vec<LinkDirection>,
    /// Address or prefix that its streams come from. If left out, none is known, and nothing can be
    /// set up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_address: Option<String>,
    /// Address or prefix that its streams go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_address: Option<String>,
    /// Circuit, if the reservation is provisioned or being released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit: Option<Circuit>,
    /// Reason for a failure, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Reservation across domains that this one is a segment of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub across: Option<Box<DomainReservation>>,
    /// Time of the request.
    #[schema(value_type = u64)]
    pub created_ms: Moment,
}

/// Delegate of a reservation's owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delegate {
    /// Key of the delegate.
    pub key: String,
    /// Display name of the delegate.
    pub name: String,
    /// The owner's signed permission: `lhd1:` and base32 digits.
    pub delegation: String,
}

/// Current state of changed reservations: the answer to every request that changes some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reserved {
    /// Changed reservations, ordered by ID; several if they recur.
    pub reservations: Vec<Reservation>,
}

/// Query of `GET /reservations`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReservationQuery {
    /// If true, only reservations that can still be used.
    pub active: Option<bool>,
    /// If true, only the caller's own.
    pub own: Option<bool>,
    /// Only reservations of this series.
    pub series: Option<u64>,
    /// Only reservations that end after this time.
    #[param(value_type = Option<u64>)]
    pub since_ms: Option<Moment>,
    /// Only reservations that begin before this time.
    #[param(value_type = Option<u64>)]
    pub before_ms: Option<Moment>,
    /// Only items after this position: `next` of the previous page.
    pub after: Option<String>,
    /// Maximum number of items in one answer.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// One page of reservations, ordered by ID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservationPage {
    /// Reservations that the caller may see.
    pub items: Vec<Reservation>,
    /// Value of `after` for the next page; left out if nothing follows yet.
    pub next: Option<String>,
}

/// Query of `DELETE /reservations/{id}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CancelQuery {
    /// If true, cancels all reservations of the series that have not ended.
    pub series: Option<bool>,
}
