//! Plans how a target tree becomes equal to a source tree. It takes two listings and returns the
//! steps, and has no I/O and no clock.
//!
//! - [`Tree`] is the listing of one side.
//! - [`Plan::new`] compares two of them.
//! - [`RenameCandidates`] are files that the source may have under another name.
//! - [`Plan::removals`] says what to remove at the target, and [`RemovalGuard`] whether to.

#![forbid(unsafe_code)]

mod guard;
mod plan;
mod renames;
#[cfg(test)]
mod tests;
mod tree;

pub use guard::{RemovalGuard, RemovalRefusal, SourceState};
pub use plan::{Change, Plan, PlanOptions, Step};
pub use renames::{Candidate, ContentHash, Rename, RenameCandidates};
pub use tree::{Modified, Node, NodeKind, Tree};
