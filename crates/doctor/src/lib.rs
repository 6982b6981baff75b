//! What of a machine and a path holds bulk transfer back, in numbers, and what mends it.
//!
//! [`gather`] collects [`Facts`] and changes nothing. [`findings()`] is pure: facts and a [`Path`]
//! give [`Finding`]s, each with what it costs on that path and the exact command that mends it.
//! [`probe`] measures the path to a host. [`render`] writes a page for a person. [`ask`] and
//! [`Server`] carry the facts of another machine. `docs/doctor.md` lists every finding.

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
