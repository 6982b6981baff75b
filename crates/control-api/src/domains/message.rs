//! Messages between the requester and the provider of a segment. Names and fields are those of the
//! NSI Connection Service 2.1, except for `renew`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::names::{
    ConnectionId, CorrelationId, DomainName, GlobalReservationId, TerminationPoint,
};
use crate::Moment;

/// Maximum number of domains that a request has passed.
pub const MAX_PATH_TRACE: usize = 16;
/// Maximum number of segments of a reservation.
pub const MAX_SEGMENTS: usize = 16;

/// Header of a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Identifier of the request; its answer carries the same one.
    #[schema(value_type = String)]
    pub correlation_id: CorrelationId,
    /// Domain that requests the segment.
    #[schema(value_type = String)]
    pub requester_nsa: DomainName,
    /// Domain that provides the segment.
    #[schema(value_type = String)]
    pub provider_nsa: DomainName,
    /// End-to-end reservation that the segment belongs to. With the requester, it identifies the
    /// segment even before its `connectionId` is known.
    #[schema(value_type = String)]
    pub global_reservation_id: GlobalReservationId,
    /// Identifier of the segment, once the requester knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub connection_id: Option<ConnectionId>,
}

/// Way in which domains ask each other for the segments of a reservation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Each domain asks the next one for the rest of the path, as in IDCP.
    #[default]
    Chain,
    /// The first domain asks all others itself, as an NSI aggregator does. It needs keys of all.
    Tree,
}

/// Segment to reserve: NSI's reservation criteria with the service `EVTS.A-GOLE`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Criteria {
    /// Point at which the bytes enter.
    #[serde(rename = "sourceSTP")]
    #[schema(value_type = String, example = "west:dtn1")]
    pub source: TerminationPoint,
    /// Point at which the bytes leave.
    #[serde(rename = "destSTP")]
    #[schema(value_type = String, example = "east:store")]
    pub destination: TerminationPoint,
    /// Rate throughout the window, in bit/s.
    #[schema(minimum = 1)]
    pub capacity_bps: u64,
    /// Start of the window.
    #[schema(value_type = u64)]
    pub start_ms: Moment,
    /// End of the window, exclusive.
    #[schema(value_type = u64)]
    pub end_ms: Moment,
    /// Way in which further segments are asked for.
    #[serde(default)]
    pub shape: Shape,
    /// Address or prefix that the streams come from, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 49)]
    pub source_address: Option<String>,
    /// Address or prefix that the streams go to, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 49)]
    pub destination_address: Option<String>,
}

/// Reserved segment of one domain, as its provider reports it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Segment {
    /// Point at which the bytes enter the domain.
    #[serde(rename = "sourceSTP")]
    #[schema(value_type = String)]
    pub source: TerminationPoint,
    /// Point at which they leave it.
    #[serde(rename = "destSTP")]
    #[schema(value_type = String)]
    pub destination: TerminationPoint,
}

/// Kind of reason for which a segment is not reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemReason {
    /// There is not enough bandwidth (NSI: 00603, CAPACITY_UNAVAILABLE).
    InsufficientBandwidth,
    /// No path leads there, or a point is unknown (00403, NO_PATH_FOUND; 00405, STP_RESOLUTION).
    NoPath,
    /// The requester may not reserve this (00300, SECURITY_ERROR).
    Forbidden,
    /// The request is invalid (00100, PAYLOAD_ERROR).
    Invalid,
    /// The segment's state does not allow it (00201, INVALID_TRANSITION).
    InvalidTransition,
    /// The provider has no such segment (00203, CONNECTION_NONEXISTENT).
    NoSuchConnection,
    /// A hold, a commit or a lease expired (00700, TIMEOUT).
    Expired,
    /// A domain does not answer (00502, CHILD_SEGMENT).
    Unreachable,
    /// The requester does not want it any more.
    Terminated,
    /// A domain ended its segment, or its paths failed (forcedEnd).
    ForcedEnd,
}

/// Reason for which a segment is not, or no longer, reserved.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SegmentProblem {
    /// Kind of the reason.
    pub reason: ProblemReason,
    /// Domain in which it arose.
    #[serde(rename = "nsaId")]
    #[schema(value_type = String)]
    pub domain: DomainName,
    /// Description in one line.
    #[schema(max_length = 400)]
    pub text: String,
}

/// Content of a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub enum MessageBody {
    /// Requests that a segment be held.
    Reserve {
        /// The segment.
        criteria: Criteria,
        /// Domains that the request has passed, the first one first. One that finds itself here
        /// refuses, as the path is a loop.
        #[serde(rename = "pathTrace")]
        #[schema(value_type = Vec<String>, max_items = 16)]
        path_trace: Vec<DomainName>,
    },
    /// The segment is held.
    ReserveConfirmed {
        /// Time for which it is held from this answer on, in milliseconds.
        #[serde(rename = "holdMs")]
        hold_ms: u64,
        /// Segments of all domains behind this one, in the direction of the bytes.
        #[schema(max_items = 16)]
        segments: Vec<Segment>,
    },
    /// The segment is not held.
    ReserveFailed {
        /// Reason.
        problem: SegmentProblem,
    },
    /// Requests that the held segment be promised.
    ReserveCommit,
    /// The segment is promised until it is renewed, or for the lease.
    ReserveCommitConfirmed {
        /// Time until the promise lapses unless it is renewed, in milliseconds.
        #[serde(rename = "leaseMs")]
        lease_ms: u64,
    },
    /// The segment is not promised.
    ReserveCommitFailed {
        /// Reason.
        problem: SegmentProblem,
    },
    /// Requests that the hold be returned.
    ReserveAbort,
    /// Nothing is held.
    ReserveAbortConfirmed,
    /// Says that all segments are committed, and that the requester still wants this one. Not part
    /// of NSI.
    Renew,
    /// The promise was renewed.
    RenewConfirmed {
        /// Time until the promise lapses unless it is renewed again, in milliseconds.
        #[serde(rename = "leaseMs")]
        lease_ms: u64,
    },
    /// Requests that the segment's paths be set up in its window.
    Provision {
        /// Number of the request. One with a lower number than an earlier one has no effect.
        sequence: u32,
    },
    /// The paths are, or will be, set up.
    ProvisionConfirmed {
        /// Number of the request.
        sequence: u32,
    },
    /// Requests that the segment's paths be torn down. It stays promised.
    Release {
        /// Number of the request.
        sequence: u32,
    },
    /// The paths are torn down.
    ReleaseConfirmed {
        /// Number of the request.
        sequence: u32,
    },
    /// Requests the end of the segment, whatever its state.
    Terminate,
    /// Nothing of the segment is held or promised.
    TerminateConfirmed,
    /// Reports that the hold expired. Repeated until it is acknowledged.
    ReserveTimeout,
    /// Reports that the segment ended without a request. Repeated until it is acknowledged.
    ErrorEvent {
        /// Reason.
        problem: SegmentProblem,
    },
    /// Acknowledges `reserveTimeout` or `errorEvent`.
    NotificationAcknowledged,
    /// A request had no effect.
    ServiceException {
        /// Reason.
        problem: SegmentProblem,
    },
}

impl MessageBody {
    /// Returns true if the requester of a segment sends it, false if its provider does.
    #[must_use]
    pub const fn is_by_requester(&self) -> bool {
        matches!(
            self,
            Self::Reserve { .. }
                | Self::ReserveCommit
                | Self::ReserveAbort
                | Self::Renew
                | Self::Provision { .. }
                | Self::Release { .. }
                | Self::Terminate
                | Self::NotificationAcknowledged
        )
    }
}

/// Message between two domains: `POST /domain/messages`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Header.
    pub header: Header,
    /// Content.
    pub body: MessageBody,
}

impl Message {
    /// Returns the domain that sends it.
    #[must_use]
    pub const fn sender(&self) -> &DomainName {
        match self.body.is_by_requester() {
            true => &self.header.requester_nsa,
            false => &self.header.provider_nsa,
        }
    }

    /// Returns the domain that it is for.
    #[must_use]
    pub const fn receiver(&self) -> &DomainName {
        match self.body.is_by_requester() {
            true => &self.header.provider_nsa,
            false => &self.header.requester_nsa,
        }
    }
}
