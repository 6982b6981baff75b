//! Reservations of bandwidth: what is asked for, what is granted, or why it is not and what could
//! be had instead.
//!
//! `POST /reservations` takes a [`ReservationRequest`]. What is granted is answered with 201 and
//! [`Reserved`]: paths with rates, for each piece of time. What there is no room for is answered
//! with 409 and a [`RefusedProblem`]: the links that are full, until when, and offers that are
//! granted when they are asked for at once.
//!
//! A reservation has three states, as the NSI Connection Service 2 has them (GFD.212): whether it
//! is reserved, whether its paths are to be set up in its window, and its life. With `hold` it is
//! held for a minute and is lost unless it is committed (`POST /reservations/{id}/commit`);
//! without, both happen at once.
//!
//! Its *circuit* is what the nodes on its paths do for it. Its streams are recognised by the ends'
//! addresses; where it has several paths at once, or asks for it (`pin`), each path has source
//! ports of its own.

mod refusal;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{End, Moment};

pub use refusal::{FullLink, NotLeadingProblem, Offer, Offers, Proof, Refusal, RefusedProblem};

/// What a reservation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Wish {
    /// One rate through all of the window, over paths that stay the same.
    Rate {
        /// In bit/s.
        #[schema(minimum = 1, example = 5_000_000_000_u64)]
        rate_bps: u64,
    },
    /// So much until the end of the window, at rates and over paths that may change.
    Volume {
        /// How much, in bytes.
        #[schema(minimum = 1)]
        bytes: u64,
        /// The highest rate that the ends can use, in bit/s; any, if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_most_bps: Option<u64>,
        /// How it is spread over the window.
        #[serde(default)]
        pace: Pace,
    },
}

/// How a volume is spread over its window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// As much as goes, as early as it goes.
    #[default]
    Early,
    /// At one rate through all of the window where that goes; else as early as it goes.
    Even,
}

/// What several paths must not share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Disjoint {
    /// They may share links.
    #[default]
    No,
    /// They share no link, in either direction.
    Links,
    /// They share no link, and no site but those at their ends.
    Sites,
}

/// Which of several paths is better, where one will do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preference {
    /// With the fewest hops; of equal ones, the least latency.
    #[default]
    FewestHops,
    /// With the least latency; of equal ones, the fewest hops.
    LeastLatency,
    /// With the most room on its fullest link.
    MostRoom,
}

/// The same again, at other times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Recurrence {
    /// A recurrence rule (RFC 5545, section 3.3.10), with COUNT or UNTIL; the window of the request
    /// is the first one.
    #[schema(max_length = 1000, example = "FREQ=WEEKLY;BYDAY=MO,WE;COUNT=10")]
    pub rule: String,
    /// The time zone in whose days and hours the rule counts, by its IANA name; UTC if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100, example = "America/Denver")]
    pub time_zone: Option<String>,
}

/// What is asked for: `POST /reservations`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReservationRequest {
    /// Where the bytes come from: a host, a depot or a site of the map.
    #[schema(value_type = String, min_length = 1, max_length = 253)]
    pub from: End,
    /// Where they go.
    #[schema(value_type = String, min_length = 1, max_length = 253)]
    pub to: End,
    /// What for.
    pub wish: Wish,
    /// When it begins; now, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub start_ms: Option<Moment>,
    /// When it ends: the first moment that is not part of it. Of a volume: the deadline.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// How many paths there may be at once.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 8, default = 1)]
    pub paths: u32,
    /// What they must not share.
    #[serde(default)]
    pub disjoint: Disjoint,
    /// Which is better, where one will do.
    #[serde(default)]
    pub preference: Preference,
    /// Sites that paths must not pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub avoid_sites: Vec<String>,
    /// Links that they must not use, in either direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub avoid_links: Vec<String>,
    /// The same again: all of them are granted, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recurrence: Option<Recurrence>,
    /// Whether it is only held, until it is committed or a minute is over.
    #[serde(default)]
    pub hold: bool,
    /// Whether its paths are set up in its window without a further request, once it is committed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub provision: bool,
    /// Whether it is for streams with source ports of its own, though one path would need none: so
    /// that other streams between the ends stay out of it. The answer names the ports.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pin: bool,
    /// The address, or the prefix, that its streams come from, where the map knows several of that
    /// end: `192.0.2.1`, `192.0.2.0/24`. It must be one that the map knows the end by; whoever runs
    /// the controller may name any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 49, example = "192.0.2.1")]
    pub from_address: Option<String>,
    /// The one that they go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 49, example = "198.51.100.1")]
    pub to_address: Option<String>,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub description: Option<String>,
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

/// What is to be different: `PATCH /reservations/{id}`. What is left out stays; a volume counts
/// from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReservationChange {
    /// What for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wish: Option<Wish>,
    /// When it begins: not earlier than now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub start_ms: Option<Moment>,
    /// When it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub end_ms: Option<Moment>,
    /// How many paths there may be at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 8)]
    pub paths: Option<u32>,
    /// What they must not share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disjoint: Option<Disjoint>,
    /// Which is better, where one will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<Preference>,
    /// Whether the change is only held, beside what is promised, until it is committed or a minute
    /// is over.
    pub hold: bool,
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LinkDirection {
    /// The link's name on the map.
    pub link: String,
    /// The site from which it leads.
    pub from: String,
    /// The site to which it leads.
    pub to: String,
}

/// Source ports from the first to the last, with both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourcePortRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

/// What went over a path, as the first node on it counts that is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Carried {
    /// Bytes that were sent on, with IP's headers and perhaps the link's, since it was set up.
    pub bytes: u64,
    /// Packets that were sent on.
    pub packets: u64,
    /// Packets that were not, because there were more than the rate allows.
    pub drops: u64,
    /// When it was counted.
    #[schema(value_type = u64)]
    pub at_ms: Moment,
}

/// A path, and what goes over it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservedPath {
    /// In bit/s.
    pub rate_bps: u64,
    /// Its links, in order.
    pub links: Vec<LinkDirection>,
    /// The source ports (TCP) by which its streams are recognised: bind the sockets of this path to
    /// them. All streams between the ends' addresses belong to a path without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<SourcePortRange>,
    /// What went over it, where that is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Carried>,
}

/// Paths, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Piece {
    /// The first moment of it.
    #[schema(value_type = u64)]
    pub start_ms: Moment,
    /// The first moment behind it.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// Which, the widest first.
    pub paths: Vec<ReservedPath>,
}

/// Where a reservation, or a change of one, stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReserveState {
    /// Nothing is under way: what is promised holds.
    Start,
    /// It is looked whether there is room.
    Checking,
    /// Room is held, until it is committed, aborted, or too late.
    Held,
    /// What is held is being made what is promised.
    Committing,
    /// There was no room.
    Failed,
    /// It was not committed in time.
    Timeout,
    /// What was held is being given back.
    Aborting,
}

/// Whether its paths are set up in its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProvisionState {
    /// They aren't.
    Released,
    /// They are to be.
    Provisioning,
    /// They are, while the window lasts.
    Provisioned,
    /// They are to be no more.
    Releasing,
}

/// Where its life stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LifeState {
    /// It can be used.
    Created,
    /// What carried it failed.
    Failed,
    /// Its window is over.
    PassedEndTime,
    /// It is being ended.
    Terminating,
    /// It is ended: nothing of it is left.
    Terminated,
}

/// The states of a reservation (GFD.212, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservationState {
    /// Whether it, or a change of it, is reserved.
    pub reserve: ReserveState,
    /// Whether it is provisioned; none before it was committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provision: Option<ProvisionState>,
    /// Its life.
    pub life: LifeState,
}

/// How the circuit of a reservation stands: its paths on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CircuitStanding {
    /// Nothing of it is to be there yet, or between two pieces of it.
    Waiting,
    /// Some of it is missing.
    SettingUp,
    /// All of it is there, as far as nodes are set up at all.
    SetUp,
    /// It could not be set up, or broke in its window.
    Failed,
    /// Some of it may still be there.
    TearingDown,
    /// Nothing of it can be set up: no node on its paths has a driver, or the addresses of its ends
    /// are not known.
    Unmanaged,
}

/// A circuit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Circuit {
    /// How it stands.
    pub standing: CircuitStanding,
    /// Sites on its paths that are not set up, because no driver is configured for them: what
    /// leaves them is best effort.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_set_up: Vec<String>,
    /// Why nothing of it can be set up, or what is missing, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What lets sessions use one path of a reservation at the depots on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathGrant {
    /// The path.
    pub path: ReservedPath,
    /// The depots for which it holds, by name.
    pub depots: Vec<String>,
    /// The way over the path's depots in the direction in which the bytes go, one depot of each
    /// site that has any, in the form of `--route`: hops that must follow directly, with their
    /// keys. None where no depot of the path has an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The grant, signed by the controller, for the key that asked: `lhg1:` and base32 digits.
    /// `None` if no depot of the map stands on the path, or it begins more than a minute from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
}

/// Grants of the paths of a reservation: `GET /reservations/{id}/grants`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathGrants {
    /// From when on they hold.
    #[schema(value_type = u64)]
    pub start_ms: Moment,
    /// Until when: at most a minute from now, or from their beginning. Ask again before that;
    /// depots ask by themselves about those that are in use.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// One for each path.
    pub items: Vec<PathGrant>,
}

/// What is held and not promised yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldReservation {
    /// Until when.
    #[schema(value_type = u64)]
    pub until_ms: Moment,
    /// What for.
    pub wish: Wish,
    /// When it begins.
    #[schema(value_type = u64)]
    pub start_ms: Moment,
    /// When it ends.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// All that would be promised.
    pub pieces: Vec<Piece>,
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reservation {
    /// Its number.
    pub id: u64,
    /// The number of the first of those that were granted together, where it recurs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<u64>,
    /// Whose it is: a key, or `operator`.
    pub owner: String,
    /// What people call its owner.
    pub owner_name: String,
    /// Where the bytes come from.
    #[schema(value_type = String)]
    pub from: End,
    /// Where they go.
    #[schema(value_type = String)]
    pub to: End,
    /// What for.
    pub wish: Wish,
    /// When it begins.
    #[schema(value_type = u64)]
    pub start_ms: Moment,
    /// When it ends: the first moment that is not part of it.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// How many paths there may be at once.
    pub paths: u32,
    /// What they must not share.
    pub disjoint: Disjoint,
    /// Which is better, where one will do.
    pub preference: Preference,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its states.
    pub state: ReservationState,
    /// What is promised, in order of time; nothing before it was committed.
    pub pieces: Vec<Piece>,
    /// What is held besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldReservation>,
    /// Links on which more is promised than may be reserved since the map was changed, or that are
    /// not on it any more. The promise stays on the books; a change of the reservation has it
    /// planned anew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub impaired: Vec<LinkDirection>,
    /// The address or the prefix that its streams come from; none is known if it is left out, and
    /// nothing can be set up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_address: Option<String>,
    /// The one that they go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_address: Option<String>,
    /// Its circuit, where it is provisioned or being released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit: Option<Circuit>,
    /// Why it failed, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// When it was asked for.
    #[schema(value_type = u64)]
    pub created_ms: Moment,
}

/// Reservations as they are now: what is answered to whatever changes some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reserved {
    /// Those that were changed, by number: more than one where it recurs.
    pub reservations: Vec<Reservation>,
}

/// Which reservations: `GET /reservations`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReservationQuery {
    /// Only those that can still be used.
    pub active: Option<bool>,
    /// Only the asker's own.
    pub own: Option<bool>,
    /// Only those of this series.
    pub series: Option<u64>,
    /// Only those that end after this moment.
    #[param(value_type = Option<u64>)]
    pub since_ms: Option<Moment>,
    /// Only those that begin before it.
    #[param(value_type = Option<u64>)]
    pub before_ms: Option<Moment>,
    /// Only those that follow: `next` of the answer before.
    pub after: Option<String>,
    /// Most of one answer.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Reservations, by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservationPage {
    /// Those that the asker may see.
    pub items: Vec<Reservation>,
    /// What to ask for as `after`; none if nothing follows by now.
    pub next: Option<String>,
}

/// Which of a series are cancelled: `DELETE /reservations/{id}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CancelQuery {
    /// All of its series that have not ended.
    pub series: Option<bool>,
}
