//! Finds what limits bulk transfer on a machine and a path, in numbers, and the commands that fix
//! it.
//!
//! [`gather`] collects [`Facts`] and changes nothing. [`findings()`] is pure: from facts and a
//! [`Path`] it derives [`Finding`]s, each with its cost on that path and the exact command that
//! fixes it. [`probe`] measures the path to a host. [`render`] formats a report for people. [`ask`]
//! and [`Server`] transfer the facts of another machine. `docs/doctor.md` lists every finding.

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

pub use exchange::{AskError, Clocks, Server, ask};
pub use fact::{Fact, Name, Text};
pub use facts::*;
pub use findings::{Cost, Finding, Mend, Severity, Side, findings};
pub use path::{Discovery, Measured, Negotiated, Path, PathMtu, ProbeMethod, Skew, Source};
