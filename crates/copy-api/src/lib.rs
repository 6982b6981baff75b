//! Interface of the process that copies, shared by `longhaul cp` and the agent, which runs it.
//!
//! - [`CopyOptions`]: the options of a copy, each defined once for the command line, for stored
//!   jobs and for the agent's API.
//! - [`CopyEvent`]: the lines that it prints with `--json`; the last one is its [`CopyReport`].
//! - [`Exit`]: its exit codes, which are those of all commands.

#![forbid(unsafe_code)]

mod event;
mod exit;
mod options;
mod progress;
mod report;

pub use event::{
    CopyEvent, DeadlineDetails, DeadlineEvent, DeadlineStatus, FailedEntry, RouteVerdict,
};
pub use exit::Exit;
pub use options::{CopyOptions, FilterOptions, MetadataOptions, SshOptions};
pub use progress::Progress;
pub use report::CopyReport;
