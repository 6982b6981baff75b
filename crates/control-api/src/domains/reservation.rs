//! Reservations that lead into other domains.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::message::{SegmentProblem, Shape};
use super::names::{ConnectionId, DomainName, GlobalReservationId, TerminationPoint};
use crate::{End, Moment};

/// Request for a reservation that leads into another domain: `POST /domain/reservations`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainReservationRequest {
    /// Source of the bytes: an end of this domain, or `DOMAIN:END`.
    #[schema(value_type = String, max_length = 317)]
    pub from: End,
    /// Destination of the bytes. One of the two ends is of this domain.
    #[schema(value_type = String, max_length = 317, example = "east:store")]
    pub to: End,
    /// Rate throughout the window, in bit/s.
    #[schema(minimum = 1)]
    pub rate_bps: u64,
    /// Start of the window; now, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub start_ms: Option<Moment>,
    /// End of the window, exclusive.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// Way in which the domains ask each other. If left out, a tree if this domain has the keys of
    /// all domains on the path, otherwise a chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// If true, the paths are set up in the window without a further request.
    #[serde(default)]
    pub provision: bool,
    /// Address or prefix that the streams come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 49)]
    pub from_address: Option<String>,
    /// Address or prefix that the streams go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 49)]
    pub to_address: Option<String>,
}

/// State of a reservation across domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DomainReservationState {
    /// Domains are asked to hold their segments.
    Reserving,
    /// All segments are held.
    Held,
    /// Domains are asked to promise their segments.
    Committing,
    /// The segment is promised, and the requester has not said yet that all are.
    Committed,
    /// All segments are promised.
    Reserved,
    /// Segments are being returned.
    Terminating,
    /// Nothing is held or promised.
    Terminated,
}

/// Segment of a reservation, as far as this domain knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DomainSegment {
    /// Domain that provides it.
    #[schema(value_type = String)]
    pub domain: DomainName,
    /// Point at which the bytes enter.
    #[schema(value_type = String)]
    pub from: TerminationPoint,
    /// Point at which they leave.
    #[schema(value_type = String)]
    pub to: TerminationPoint,
    /// Its identifier at its provider, if this domain asked for it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub connection_id: Option<ConnectionId>,
    /// Number of the reservation in this domain's book.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<u64>,
}

/// Reservation across domains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DomainReservation {
    /// Identifier, the same in all domains.
    #[schema(value_type = String)]
    pub id: GlobalReservationId,
    /// Identifier of this domain's part of it.
    #[schema(value_type = String)]
    pub connection_id: ConnectionId,
    /// Domain that asked this one; left out if a user of this domain did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub requester: Option<DomainName>,
    /// Owner: a key, or `operator`.
    pub owner: String,
    /// Source of the bytes.
    #[schema(value_type = String)]
    pub from: TerminationPoint,
    /// Destination of the bytes.
    #[schema(value_type = String)]
    pub to: TerminationPoint,
    /// Rate, in bit/s.
    pub rate_bps: u64,
    /// Start of the window.
    #[schema(value_type = u64)]
    pub start_ms: Moment,
    /// End of the window, exclusive.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// Way in which the domains ask each other.
    pub shape: Shape,
    /// State.
    pub state: DomainReservationState,
    /// If true, the paths are, or are to be, set up in the window.
    pub provision: bool,
    /// Segments, in the direction of the bytes.
    pub segments: Vec<DomainSegment>,
    /// Reason for its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<SegmentProblem>,
}

/// Reservations across domains: `GET /domain/reservations`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DomainReservationList {
    /// Reservations that the caller may see, by their identifiers.
    pub items: Vec<DomainReservation>,
}
