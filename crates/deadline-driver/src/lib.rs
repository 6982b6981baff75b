//! Driver of `cp --by`: observes a copy with a deadline, passes its progress to the planner of
//! `longhaul-deadline`, and carries out the planner's decisions at a controller.
//!
//! | module | purpose |
//! |---|---|
//! | `request` | the copy, its deadline, and how the driver reaches the copy |
//! | `driver` | the task that connects the others |
//! | `sampler` | what the planner learns of the copy: remaining bytes, rates and forecasts |
//! | `reservation` | the copy's reservation at the controller |
//! | `ends` | the copy's ends on the controller's map |
//! | `granted` | the controller's grants as reserved routes of the copy: pure |
//! | `routes` | which reserved routes carry streams, and which have failed: pure |
//! | `records` | records on disk, so that the reservation of a killed copy is returned |
//! | `report` | the report at the end |
//!
//! All of this runs beside the copy, which waits for nothing: it starts by best effort at once, and
//! reserved routes join it. At its end, remaining reservations are returned, which takes 3 s at
//! most.

#![forbid(unsafe_code)]

mod driver;
mod ends;
mod granted;
mod records;
mod report;
mod request;
mod reservation;
mod routes;
mod sampler;

pub use driver::Deadline;
pub use records::{LockedRecord, ReservationRecord, leftover_records, return_leftovers};
pub use report::DeadlineReport;
pub use request::{DeadlineRequest, DeadlineSettings, ObservedCopy};
pub use routes::ReservedRouteReport;
