//! Reservations across domains. A *domain* is a controller, or several that share a store, with a
//! map, a book of reservations and a policy of its own. Domains reserve segments for each other.
//!
//! The messages and their states follow the NSI Connection Service 2.1 (GFD.237): one domain is the
//! *requester* and the other the *provider* of a segment. A message is delivered by
//! `POST /domain/messages`, signed by the key of the domain that sends it, and answered with 202
//! once it is stored. The answer of the service is a message in the other direction.
//!
//! Domains publish what may cross them: `GET /domain/topology`.

mod message;
mod names;
mod reservation;
mod topology;

pub use message::{
    Criteria, Header, MAX_PATH_TRACE, MAX_SEGMENTS, Message, MessageBody, ProblemReason, Segment,
    SegmentProblem, Shape,
};
pub use names::{
    ConnectionId, CorrelationId, DomainName, GlobalReservationId, NameError, TerminationPoint,
};
pub use reservation::{
    DomainReservation, DomainReservationList, DomainReservationRequest, DomainReservationState,
    DomainSegment,
};
pub use topology::{
    Access, AvailableRate, Crossing, DomainForecast, DomainForecastList, DomainForecasts,
    DomainTopology, Edge, KnownDomain, KnownDomains, MAX_CROSSINGS, MAX_EDGES, MAX_FORECASTS,
    MAX_STEPS, PeerDomain, SignedTopology,
};
