//! Copies file trees over sessions: walk, blocks, streams, integrity.
mod account;
mod client;
mod descriptors;
mod error;
mod explain;
pub mod files;
mod flow_report;
mod frame_io;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod grants;
mod hole_hash;
mod limits;
mod listening;
mod local;
mod manifest;
mod metadata;
mod over_sessions;
mod part;
pub mod path;
mod process_limits;
mod progress;
mod receive;
pub mod remembered;
mod send;
mod server;
pub mod store;
mod tree_hash;
pub mod typed_path;
mod wire;
mod workers;

pub use client::{
    Client, ConnectError, ConnectFailure, Connector, CopyOutcome, DEFAULT_PATIENCE, MAX_STREAMS,
    RoutePlan, Transport,
};
pub use error::{Error, Failure, FailureKind};
pub use explain::{FlowSummary, explain};
pub use grants::{Access, GrantError, Grants, GrantsInForce};
pub use limits::{BUFFER_BYTES, DESCRIPTORS_PER_FILE, MIN_OPEN_FILES, STREAM_BYTES, ServerLimits};
pub use local::copy_local;
pub use over_sessions::{
    ReservationMark, ReservedRoute, SessionConnector, depots_of, is_reserved, serve_files,
    serve_session,
};
pub use part::{CopyPart, MAX_PARTS, PartError, Portion};
pub use process_limits::ProcessLimits;
pub use progress::{
    ConnectionEnds, NotKept, NotKeptCounts, Observer, RouteStanding, Standstill, StreamCounters,
    TransferEvent, TransferProgress,
};
pub use remembered::StreamMemory;
pub use send::Sources;
pub use server::{ServedRoot, Server};
pub use store::{CopyDestination, TEMP_PREFIX, WriteOptions};
pub use tree_hash::Hash;
pub use wire::{Compare, CopyRequest, CopyToken, Hello, Placement, VERSION, WireError};
