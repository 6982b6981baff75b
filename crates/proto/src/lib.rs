//! The Longhaul session protocol: messages, codec and state machines, without I/O or a clock.
//!
//! `docs/protocol.md` specifies the bytes. Its rules have names (`LH-OPEN-3`), which the code that
//! implements them cites. Time is always an argument and bytes are slices, so everything here runs
//! in virtual time.
//!
//! - [`Open`] is the one forward message, and [`Status`] is the answer of each hop. [`OpenDecoder`]
//!   and [`StatusDecoder`] read them from a stream piece by piece.
//! - [`Admission`] holds the checks that a receiver makes of an OPEN, in order. [`ReplayMemory`] is
//!   the receiver's memory of earlier ones. [`Shares`] divides a bounded resource among its users,
//!   and [`LogRate`] bounds the log lines that a remote party can cause.
//! - [`Chain`] is the initiator's view: it collects the statuses and decides whether the route is
//!   established or which hop failed.

#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing)] // the input comes from the network
#![cfg_attr(test, allow(clippy::indexing_slicing))]

mod admission;
mod chain;
mod circuit_grant;
mod delegation;
mod endpoint;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod hop_details;
mod key;
mod log_rate;
mod open;
mod open_codec;
mod port_range;
mod probe;
mod replay;
mod resume;
mod route;
mod serde_text;
mod service;
mod session_id;
mod shares;
mod signing_key;
mod status;
mod status_codec;
pub mod text;
mod tlv;
mod transport;
mod voucher;

pub use admission::{Admission, OpenRefusal};
pub use chain::{Chain, ChainFailure, ChainProgress, FailureKind};
pub use circuit_grant::{
    CircuitGrant, GrantFault, InvalidGrant, MAX_GRANT_BYTES, MAX_GRANT_DEPOTS, MAX_GRANT_LIFETIME,
    payload_rate,
};
pub use delegation::{
    DelegatedAction, DelegatedCircuit, Delegation, DelegationFault, InvalidDelegation,
    MAX_DELEGATION_BYTES, MAX_DELEGATION_LIFETIME, MAX_DELEGATION_TEXT_BYTES, MAX_OPEN_DELEGATIONS,
    MAX_READ_LIFETIME,
};
pub use endpoint::{Endpoint, EndpointError, Host};
pub use hop_details::HopDetails;
pub use key::{KeyError, PublicKey};
pub use log_rate::LogRate;
pub use open::{NextReceiver, Open, TraceContext, UnknownOption, VersionRange};
pub use open_codec::{OpenDecoder, OpenError, is_known_option};
pub use port_range::{PortRange, PortRangeError};
pub use probe::{MAX_PROBE_BYTES, MAX_PROBE_EXCHANGES, PROBE_MESSAGE_BYTES, ProbeMessage};
pub use replay::{MAX_SIGNATURE_AGE, MAX_SIGNATURE_AHEAD, ReplayError, ReplayMemory, check_time};
pub use resume::{ResumeAnswer, ResumeOffer, ResumeRequest};
pub use route::{Hop, Route, RouteError};
pub use service::{ServiceName, ServiceNameError};
pub use session_id::SessionId;
pub use shares::{ExhaustedBound, Shares};
pub use signing_key::SigningKey;
pub use status::{Status, StatusCode};
pub use status_codec::{StatusDecoder, StatusError};
pub use transport::{Transport, UnknownTransport};
pub use voucher::{
    InvalidVoucher, MAX_VOUCHER_BYTES, MAX_VOUCHER_CERTIFICATES, MAX_VOUCHER_LIFETIME, Voucher,
    VoucherFault,
};

/// Maximum size of an OPEN, in bytes, header included (LH-OPEN-3).
pub const MAX_OPEN_BYTES: usize = 8192;
// Even the longest OPEN with a ClientHello fits TCP's initial window of ten segments (RFC 6928) on
// the narrowest IPv6 path, so no round trip is added (LH-DEPOT-1).
const _: () = assert!(MAX_OPEN_BYTES + 2000 < 10 * 1220);
/// Maximum size of a STATUS, in bytes, header included (LH-STATUS-2).
pub const MAX_STATUS_BYTES: usize = 1024;
/// Maximum padding that an OPEN may request for the acceptor's STATUS, in bytes (LH-STATUS-9). A
/// padded STATUS may exceed [`MAX_STATUS_BYTES`] by this much.
pub const MAX_PADDING_BYTES: u16 = 16 * 1024;
/// Maximum number of hops that a route may list (LH-ROUTE-4).
pub const MAX_HOPS: usize = 16;
/// Maximum number of depots that an OPEN may record as passed, including those added before loose
/// hops (LH-ROUTE-4).
pub const MAX_PASSED_DEPOTS: usize = 32;
/// Maximum early data, in bytes, that a depot buffers while it dials the next hop (LH-DEPOT-5).
pub const MAX_EARLY_DATA_BYTES: usize = 64 * 1024;
/// Default hop limit of an initiator (LH-ROUTE-6).
pub const DEFAULT_HOP_LIMIT: u8 = 16;
/// Protocol version that this crate implements (LH-OPEN-2).
pub const VERSION: u8 = 1;
/// Default TCP port of a depot.
pub const DEPOT_PORT: u16 = 7510;
/// Default TCP port of an acceptor.
pub const ACCEPTOR_PORT: u16 = 7511;
/// Default TCP port of an off-ramp.
pub const OFFRAMP_PORT: u16 = 7512;
