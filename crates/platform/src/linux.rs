//! Calls of Linux.

pub mod fs;
pub mod net;
pub mod process;
pub mod random;
pub mod tcp;
