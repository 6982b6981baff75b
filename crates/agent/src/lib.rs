//! The agent: stores copies as jobs, runs them, and serves them over HTTP.
//!
//! | module | purpose |
//! |---|---|
//! | [`model`] | a job, its request and its progress, as the API has them |
//! | [`store`] | jobs in SQLite or PostgreSQL; each change is one step of [`jobs::JobLife`] |
//! | [`jobs`] | the life of a job, its retries, and which one runs next: pure |
//! | `attempt` | one attempt: a process of this program that copies |
//! | [`agent`] | scheduling of jobs |
//! | [`notice`] | reports of ended jobs to a URL |
//! | [`places`] | named ends of copies, and their directories |
//! | `metrics` | counters and their page |
//! | `asset` | a file of the web page |
//! | [`http`] | the API |
//!
//! Each job runs as `longhaul cp --json` in a process of its own. An attempt that fails affects
//! nothing else. One that is killed has lost nothing, as the next one resumes where it stopped.

pub mod agent;
mod asset;
mod attempt;
pub mod http;
pub mod jobs;
mod metrics;
pub mod model;
pub mod notice;
pub mod places;
pub mod store;

pub use agent::{Agent, AgentSettings};
pub use model::{Job, JobRequest, JobState, Progress};
pub use store::{JobStore, StoreError};
