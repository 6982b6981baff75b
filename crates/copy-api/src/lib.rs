//! Interface of the process that copies, shared by `longhaul cp` and the agent, which runs it.
//!
//! - [`CopyOptions`]: the options of a copy, each defined once for the command line, for stored
//!   jobs and for the agent's API.

#![forbid(unsafe_code)]

mod options;

pub use options::{CopyOptions, SshOptions};
