//! Starting programs with the preload object before them: which programs can be helped, where the object is, what the environment says,
//! and how a program is waited for.

mod child;
mod object;
mod program;

pub use child::{Passed, exit_code};
pub use object::{NoObject, find as find_object, preload};
pub use program::{Starter, Unfit, find as find_program, locate, privileged};
