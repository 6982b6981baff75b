//! Copies file trees over sessions: walk, blocks, streams, integrity.
mod account;
mod attributes;
mod bearer;
mod block_size;
mod client;
mod compression;
mod delta;
mod descriptors;
mod error;
mod existing;
mod explain;
pub mod fetch;
pub mod files;
mod flow_report;
mod frame_io;
mod full_read;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod grants;
mod half;
mod hole_hash;
mod late_size;
mod limits;
mod listening;
mod local;
pub mod local_end;
mod manifest;
mod metadata;
mod over_sessions;
mod packed;
mod part;
pub mod path;
mod preservation;
mod process_limits;
mod progress;
pub mod receipt;
mod receive;
pub mod remembered;
pub mod remote_copy;
mod reporter;
mod route_info;
mod send;
mod server;
pub mod store;
mod stripe;
mod tree_hash;
pub mod typed_path;
mod wire;
mod workers;

pub use account::ResourceUse;
pub use bearer::{
    BearerToken, MAX_TOKEN_BYTES, NotAToken, TokenAuthority, TokenFuture, TokenRefusal,
    TokenRights, TokenSource,
};
pub use client::{
    Client, ConnectError, ConnectFailure, Connector, CopyOutcome, DEFAULT_PATIENCE, MAX_STREAMS,
    RoutePlan, StreamOrigin, Transport,
};
pub use compression::{Compression, UnknownCompression};
pub use error::{Error, Failure, FailureKind};
pub use existing::ExistingPolicy;
pub use explain::{FlowSummary, explain};
pub use grants::{Access, GrantError, Grants, GrantsInForce, LocalAccount};
pub use limits::{BUFFER_BYTES, DESCRIPTORS_PER_FILE, MIN_OPEN_FILES, STREAM_BYTES, ServerLimits};
pub use local::copy_local;
pub use longhaul_filter::{Filter, FilterRules};
pub use metadata::changes::{MetadataChanges, OwnerChange, OwnerChangeError};
pub use metadata::mode_changes::{ModeChanges, ModeChangesError};
pub use over_sessions::{
    Fetcher, SessionConnector, StripeMembers, serve_fetch, serve_files, serve_session,
    serve_stream, serve_striped,
};
pub use part::{CopyPart, MAX_PARTS, PartError, Portion};
pub use preservation::Preservation;
pub use process_limits::ProcessLimits;
pub use progress::{
    ConnectionEnds, NotKept, NotKeptCounts, Observer, RouteStanding, Standstill, StreamCounters,
    TransferEvent, TransferProgress,
};
pub use remembered::StreamMemory;
pub use route_info::{ReservationMark, ReservedRoute, RouteInfo};
pub use send::Sources;
pub use server::{
    AccountSetting, FetchSource, RunningCopies, ServedRoot, Server, ServerCounts, StreamKind,
    StreamPermit,
};
pub use store::{AttributeSettings, CopyDestination, TEMP_PREFIX, WriteOptions};
pub use stripe::MemberId;
pub use tree_hash::Hash;
pub use wire::{Compare, CopyRequest, CopyToken, Hello, Placement, VERSION, WireError};
