//! The generated pages of the book: the references of errors and of metrics, read from the sources
//! of the crates that make up the `longhaul` command.
//!
//! Doc comments of error variants and the texts given to the metrics registry are written once, at
//! their definition. This crate collects them, so that no page repeats them.

#![forbid(unsafe_code)]

pub mod errors;
pub mod metrics;
pub mod sources;
pub mod template;
