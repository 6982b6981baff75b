//! Workers of local accounts: processes that serve streams as the users of grants with an
//! `account`.
//!
//! The server, which is the *front*, ends the sessions and keeps the records. [`WorkerPool`] gets a
//! worker from `longhaul serve-accounts` for each account that is needed, and passes it the
//! plaintext of streams. [`run_worker`] is the other side.

mod channel;
mod local_stream;
mod message;
mod pool;
mod quota_book;
mod receipts;
mod reported_record;
#[cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "nobody answers there")
)]
pub mod request;
mod worker;
mod worker_handle;

pub use pool::{PoolOptions, WorkerPool};
pub use worker::run as run_worker;
