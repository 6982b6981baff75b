//! Starting programs with the preload object before them: which programs can be helped, where the
//! object is, what the environment says, and how a program is waited for.

use std::ffi::OsString;

mod child;
mod object;
mod program;

pub use child::{Passed, exit_code};
pub use object::{NoObject, find as find_object, preload};
pub use program::{Starter, Unfit, find as find_program, locate, privileged};

/// Variable that tells the library which filters of system calls are not the program's own, and its
/// value.
#[must_use]
pub fn inherited_filters() -> (&'static str, OsString) {
    let count = crate::filter::count().map_or(OsString::new(), |count| count.to_string().into());
    (crate::filter::FILTERS_VARIABLE, count)
}
