//! Finds what limits bulk transfer on a machine and a path, in numbers, and the commands that fix
//! it.
//!
//! [`gather`] collects [`Facts`] and changes nothing. [`findings()`] is pure: from facts and a
//! path it derives [`Finding`]s, each with its cost on that path and the exact command that
//! fixes it. [`probe`] measures the path to a host. [`render`] formats a report for people. [`ask`]
//! and [`FactsServer`] transfer the facts of another machine. `docs/doctor.md` lists every finding.

mod exchange;
mod fact;
mod facts;
pub mod findings;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod gather;
mod path;
pub mod probe;
pub mod render;

pub use exchange::{AskError, Clocks, FactsServer, ask};
pub use fact::{CommandName, Fact, PrintableText};
pub use facts::*;
pub use findings::{Finding, FindingCost, FindingSide, Fix, Severity, findings};
pub use path::{
    AssessedPath, Discovery, Negotiated, NumberSource, PathMeasurement, PathMtu, ProbeMethod,
    QuicPath, Skew,
};
