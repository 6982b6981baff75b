//! Starting programs with the preload object: which programs support it, where the object is, the
//! environment, and waiting for the program.

use std::ffi::OsString;

mod child;
mod object;
mod program;

pub use child::{Passed, exit_code};
pub use object::{NoObject, find as find_object, preload};
pub use program::{Starter, Unfit, find as find_program, locate, privileged};

/// Returns the variable that tells the library the number of inherited filters of system calls, and
/// its value.
#[must_use]
pub fn inherited_filters() -> (&'static str, OsString) {
    let count = crate::filter::count().map_or(OsString::new(), |count| count.to_string().into());
    (crate::filter::FILTERS_VARIABLE, count)
}
