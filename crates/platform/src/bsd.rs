//! Replacements for the calls of Linux, by what POSIX and macOS have.

pub mod fs;
pub mod net;
pub mod process;
pub mod random;
pub mod tcp;
