//! The agent: keeps copies as jobs, carries them out, and serves them over HTTP.
//!
//! | room | what it does |
//! |---|---|
//! | [`model`] | a job, its request and its progress, as they are asked for and shown |
//! | [`store`] | keeps jobs, in SQLite or PostgreSQL; each change is one transaction around a step of [`longhaul_jobs::Life`] |
//! | `attempt` | one attempt: a process of this program that copies |
//! | [`agent`] | which jobs run here, and what becomes of them |
//! | [`notice`] | reports to a URL that a job has ended |
//! | [`places`] | named ends of copies, and what is in them |
//! | [`http`] | the API |
//!
//! A job is carried out by `longhaul cp --json`, in a process of its own: an attempt that fails
//! takes nothing else with it, and one that is killed has lost nothing, because the next one goes
//! on where it was.

pub mod agent;
mod attempt;
pub mod http;
pub mod model;
pub mod notice;
pub mod places;
pub mod store;

pub use agent::{Agent, Settings};
pub use model::{CopyOptions, Job, JobRequest, JobState, Progress};
pub use store::{Store, StoreError};
