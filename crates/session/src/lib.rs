//! A byte stream over a route of depots, secured end to end.
//!
//! [`connect`] opens a [`Session`] along a route to a [`Listener`]. Both ends then have an ordinary
//! asynchronous byte stream under TLS 1.3, and each knows the other's key. The depots between them
//! see only the OPEN.
//!
//! ```no_run
//! # async fn example() -> Result<(), longhaul_session::Error> {
//! use std::{path::Path, sync::Arc};
//! use longhaul_session::{ConnectOptions, Identity, ServerTrust, ServiceName, connect};
//! use tokio::io::AsyncWriteExt;
//!
//! let identity = Arc::new(Identity::load(Path::new("identity"))?);
//! let server = ServerTrust::Pinned(
//!     "lhk1:qkpvm2v5fo7pw4i4fjbx5kuoeqwpvm3ltcn27g7jyo3v7dzyzq5a".parse()?,
//! );
//! let options = ConnectOptions::new(
//!     ServiceName::COPY,
//!     "depot.example".parse()?,
//!     "server.example:7511".parse()?,
//!     identity,
//!     server,
//! );
//! let mut session = connect(&options).await?;
//! session.write_all(b"hello").await.ok();
//! session.shutdown().await.ok();
//! # Ok(())
//! # }
//! ```
//!
//! The rules that the code cites (`LH-TLS-1`) are those of `docs/protocol.md`.

#![forbid(unsafe_code)]

mod accept;
mod clear;
mod connect;
mod errno;
mod error;
mod first_hop;
mod flow_watch;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod hop_stream;
mod identity;
mod join;
mod known_hosts;
mod listener;
mod registration;
mod resumable;
mod secured;
mod server_voucher;
mod session;
mod setup_observer;
mod tls;
mod unanswered;

pub use accept::{Acceptor, IncomingSession, RejectedConnection, SessionRefusal};
pub use clear::PlaintextRanges;
pub use connect::{AddressFilter, ConnectOptions, connect, connect_over};
pub use errno::errno_of;
pub use error::{Error, FirstHop};
pub use first_hop::has_several_addresses;
pub use identity::Identity;
pub use join::{JoinObserver, OnMoved};
pub use known_hosts::KnownHosts;
pub use listener::{ListenOptions, Listener, ListenerCounts};
pub use longhaul_hop::read_trusted_file;
pub use longhaul_proto::{Endpoint, HopDetails, PublicKey, Route, ServiceName, SessionId, Status};
pub use resumable::{
    DEFAULT_RESUME_WITHIN, ResumeAcceptance, ResumeError, ResumeEvent, ResumeLimits, ResumeMemory,
    ResumeObserver, ResumeOptions, RouteList,
};
pub use secured::SESSION_BYTES;
pub use server_voucher::ServerVoucher;
pub use session::{PlaintextStream, Session, SessionInfo};
pub use setup_observer::{SetupEvent, SetupObserver};
pub use tls::{KeyVerdict, ServerKeyCallback, ServerTrust};
